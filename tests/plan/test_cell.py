"""Keys: stable, and made of everything that changes a result."""

from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.plan.cell import Cell

PLAIN = Cell(
    kind="fit", dataset="banana", data="abc", split="counts-v1", task="binary", likelihood="probit", kernel="rbf",
    ard=False, mean="constant", M=53, n=100, objective="log_dlm", variant="fixed", form="explicit",
    parameterisation="whitened", estimator="bmc", samples=10, nu=None, nodes=None, sampler=None, lr=0.1,
    minibatch=None, window=20, tolerance=1e-4, max_iterations=3000, epochs=None, evaluate="end", dtype="float64",
    seed=3, beta=0.1, base="feed",
)  # fmt: skip


def test_the_key_is_the_same_on_every_machine_and_for_good():
    assert PLAIN.key == "4e59517bd39db2406665"
    assert replace(PLAIN, beta=None, seed=0).key == "5fefe9a0cf96ece1e77f"


@pytest.mark.parametrize("field", [f.name for f in fields(Cell)])
def test_every_field_changes_the_key(field):
    value = getattr(PLAIN, field)
    other = not value if isinstance(value, bool) else "x" if isinstance(value, str | None) else value + 1
    assert replace(PLAIN, **{field: other}).key != PLAIN.key


@given(st.floats(1e-3, 1e6), st.integers(0, 10**6), st.integers(1, 10**7))
def test_there_and_back_through_a_record(beta, seed, n):
    import json

    cell = replace(PLAIN, beta=beta, seed=seed, n=n)
    again = Cell.from_dict(json.loads(json.dumps(asdict(cell))))
    assert again == cell
    assert again.key == cell.key


def test_cells_of_a_group_differ_in_seed_beta_and_base_alone():
    assert replace(PLAIN, seed=9, beta=1.0, base=None).group == PLAIN.group
    for field in fields(Cell):
        if field.name not in ("seed", "beta", "base"):
            assert replace(PLAIN, **{field.name: "other"}).group != PLAIN.group


def test_words():
    assert PLAIN.describe() == "banana n=100 seed=3 fixed_log_dlm bmc-10 beta=0.1"
    assert replace(PLAIN, objective="fitc", variant="joint", beta=None, samples=None, estimator="exact").describe() == (
        "banana n=100 seed=3 fitc exact"
    )
    assert replace(PLAIN, parameterisation="unwhitened").describe().endswith("bmc-10 unwhitened beta=0.1")
    assert replace(PLAIN, objective="elbo", variant="joint").method == "elbo"
