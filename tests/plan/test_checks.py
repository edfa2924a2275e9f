"""What is refused before anything runs, by a sentence that names it: single values, and what goes with what."""

import math
from pathlib import Path

import pytest

from dlmexp.errors import UserError
from dlmexp.paths import extended
from dlmexp.plan.compose import compose
from dlmexp.plan.grid import check
from dlmexp.plan.overrides import check_limits
from tests.conftest import REPOSITORY
from tests.support.cells import planned


@pytest.mark.parametrize(
    ("limits", "within", "beyond"),
    [
        ({"bounds": {">": 0}}, [1e-9, 5, None, [1, 2], {"x": 3}], [0, -1, math.nan, math.inf, [1, 0], {"x": 0}]),
        ({"bounds": {">=": 1, "<=": 8}}, [1, 2.5, 8, [2, 3]], [0.999, math.nan, math.inf, 8.001, [2, 9]]),
        ({"choices": ("a", "b")}, ["a", ["a", "b"], {"x": "b"}], ["c", ["a", "c"], {"x": "c"}]),
        ({"filled": True}, [[0], "x", {"x": 0}], [[], {}, ""]),
        ({"keys": ("a", "b")}, [{"a": 1, "b": 2}], [{"a": 1}, {"a": 1, "b": 2, "c": 3}]),
    ],
)
def test_limits_of_the_schema(limits, within, beyond):
    for value in within:
        check_limits("some.name", value, limits)
    for value in beyond:
        with pytest.raises(UserError, match=r"^some\.name[.=]") as refused:
            check_limits("some.name", value, limits)
        assert "\n" not in str(refused.value)


def write_method(folder: Path, text: str) -> None:
    (folder / "method").mkdir()
    (folder / "method" / "mine.yaml").write_text(f"# @package method.mine\n{text}")


POL, FLOOR = "dataset=pol sizes=[60]", "training.regression.noise_floor"
REFUSED = {
    "training.binary.lr=0": "training.binary.lr=0", "training.binary.criterion=x": "criterion=x",
    "beta.ratio=1": "beta.ratio=1", "dataset.banana.M=0": "dataset.banana.M=0",
    "training.binary.lr=true": "lr=true", "seeds=[[1]]": "seeds", "seeds=3": "seeds",
    "csv.columns=[[a]]": "csv.columns", "++training.binary.initial={a:[1]}": "initial",
    "training.binary.initial={1:2}": "initial", "training.binary=5": "training.binary",
    "method=[joint_sq_dlm]": "joint_sq_dlm", "method=[fitc]": "fitc", "estimator.exact.samples=[0]": "exact",
    "training.binary.final_lr=0.01": "training.binary", "training.binary.initial.lengthscale=0": "lengthscale=0",
    "dataset.banana.name=../../x": "../../x", "dataset.banana.kernel=rbff": "rbff",
    "dataset.banana.likelihood=probt": "probt", "dataset.banana.likelihood=poisson": "poisson",
    "method.elbo.objective=log_dlm": "method.elbo", "method.elbo.select=true": "method.elbo",
    "dataset.banana.name=ringnorm": "'ringnorm'", "dataset.banana.loader=table": "'banana'",
    "dataset.banana.options.checks.positives=3": "'banana'", "~training.binary": "training.binary",
    "~training.binary.lr": "training.binary.lr",
    "estimator=[bmc] estimator.bmc.samples=[]": "estimator.bmc.samples", "estimator=[bmc] +estimator.bmc.nu=1": "nu",
    "estimator=[bmc] estimator.bmc.samples=[-2]": "samples=-2",
    "estimator=[quadrature] estimator.quadrature.nodes=0": "nodes=0",
    "estimator=[ups] estimator.ups.sampler=atuo": "auto", "estimator=[smooth_bmc] estimator.smooth_bmc.nu=a": "nu=a",
    "estimator=[bmc] estimator.bmc.samples=[9999999]": "9999999",
    "estimator=[bmc] estimator.bmc.samples=null": "estimator.bmc.samples=null",
    "estimator=[bmc] estimator.bmc.samples=1.5": "estimator.bmc.samples=1.5",
    "estimator=[bmc] ~estimator.bmc.samples": "samples", "method=[beta_elbo] beta.first=1e-310": "beta.first=1e-310",
    "method=[beta_elbo] beta.ratio=1.0000001": "beta.ratio=1.0000001",
    "protocol=annealed training.binary.max_iterations=300": "6500",
    "sizes=[-5]": "size '-5'", "sizes=[many]": "size 'many'", "sizes=['150%']": "150%", "evaluate=epoch": "evaluate=",
    "evaluate=0": "evaluate=0",
    "training.binary.noise_floor=0.01": "banana", f"{POL} {FLOOR}=0.1": "noise_floor=0.1",
    f"{POL} training.regression.initial.noise=0.005 {FLOOR}=0.01": "0.005",
    f"{POL} method=[mine]": "base=fitc",  # which gives no hyperparameters
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_go_together_is_refused(words, monkeypatch, tmp_path):
    monkeypatch.chdir(REPOSITORY)
    write_method(tmp_path, "objective: log_dlm\nvariant: fixed\nbase: fitc\n")
    with extended(str(tmp_path)), pytest.raises(UserError) as refused:
        planned("dataset=banana", *words.split())
    assert REFUSED[words] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_name_of_ours_is_not_for_other_data_or_methods(tmp_path):
    words = ["dataset=csv", f"csv.path={tmp_path}/x.csv", "csv.target=y", "csv.task=binary"]
    check(compose([*words, "csv.name=mine"]))
    with pytest.raises(UserError, match="'sarcos'"):
        check(compose([*words, "csv.name=sarcos"]))
    write_method(tmp_path, "objective: log_dlm\nselect: false\n")
    with extended(str(tmp_path)):
        cfg = compose(["dataset=banana", "method=mine"])
        check(cfg)
    assert list(cfg.method) == ["mine"]
