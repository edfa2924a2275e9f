"""Methods by name, for those who only read records."""

from dlmexp.catalogue import methods
from dlmexp.objectives import OBJECTIVES


def test_the_seven_of_the_paper():
    found = methods()
    expected = {"elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm", "joint_sq_dlm", "fixed_sq_dlm"}
    assert set(found) == expected
    assert {name for name, method in found.items() if not method["select"]} == {"elbo", "fitc"}
    for name, method in found.items():
        assert method["objective"] in OBJECTIVES
        assert method["variant"] == ("fixed" if name.startswith("fixed") else "joint")
