"""Which cells a config spans."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.config import BetaConfig
from dlmexp.errors import UserError
from dlmexp.plan.compose import compose
from dlmexp.plan.grid import betas
from dlmexp.plan.overrides import spelled_out
from dlmexp.plugins import extended
from tests.support.cells import planned


def _cells(*words, rows=600):
    """The cells, each once, in the order they are asked for."""
    return list(dict.fromkeys(cell for some in planned(*words, rows=rows) for cell in some.cells))


@given(
    st.integers(1, 10**6), st.floats(0.5, 4), st.floats(1.05, 50), st.floats(1e-3, 10), st.booleans(),
    st.none() | st.tuples(st.floats(0.1, 100), st.floats(1.05, 50)),
)  # fmt: skip
def test_a_grid_falls_by_its_ratios_from_its_first_beta_to_its_smallest(n, first, ratio, smallest, zero, coarse):
    above, coarse_ratio = coarse or (None, None)
    values = betas(BetaConfig(first, ratio, smallest, above, coarse_ratio, zero), n)
    assert (values[-1] == 0.0) == zero
    grid = values[:-1] if zero else values
    assert grid[0] == n / first
    for a, b in itertools.pairwise(grid):
        assert a / b == pytest.approx(coarse_ratio if above is not None and a > above else ratio)
    assert len(grid) == 1 or grid[-1] >= smallest
    last_ratio = coarse_ratio if above is not None and grid[-1] > above else ratio
    assert last_ratio is not None
    assert grid[-1] / last_ratio < smallest


@given(st.lists(st.floats(0, 1e6), min_size=1))
def test_listed_betas_are_sorted_and_distinct(values):
    assert betas(BetaConfig(values=values), 100) == sorted(set(values), reverse=True)


@pytest.mark.parametrize(
    "beta",
    [
        BetaConfig(),
        BetaConfig(ratio=2),
        BetaConfig(ratio=2, smallest=0.01, first=1e-310),
        BetaConfig(ratio=1.0000001, smallest=0.01),
        BetaConfig(ratio=2, smallest=0.01, coarse_above=5),
    ],
)
def test_grids_that_have_no_end_or_no_beginning(beta):
    with pytest.raises(UserError, match="beta"):
        betas(beta, 100)


def test_methods_sizes_seeds_and_the_fits_that_fixed_variants_need():
    cells = _cells(
        "dataset=banana", "method=[elbo,beta_elbo,fixed_log_dlm]", "beta=list", "beta.values=[3,1]", "seeds=[0,4]",
        "sizes=[10,80]", "parameterisation=[whitened,unwhitened]",
    )  # fmt: skip
    fixed = [cell for cell in cells if cell.variant == "fixed"]
    joint = [cell for cell in cells if cell.variant == "joint"]
    assert (len(fixed), len(joint)) == (16, 16), "the ELBO is beta-ELBO at 1, and the base of what is fixed"
    assert {(cell.M, cell.data, cell.split) for cell in cells if cell.n == 10} == {(10, "sum", "counts-v1")}
    by_key = {cell.key: cell for cell in joint if cell.beta == 1.0}
    for cell in fixed:
        base = by_key[cell.base or ""]
        assert (base.seed, base.n, base.parameterisation) == (cell.seed, cell.n, cell.parameterisation)


@pytest.mark.parametrize("words", ["beta=grid", "beta=short", "beta=list beta.values=[50,100]"])
def test_the_betas_of_one_config_are_candidates_of_one_another(words):
    made = planned(
        "dataset=abalone", "method=[elbo,joint_log_dlm,fixed_log_dlm]", "estimator=[bmc]",
        "estimator.bmc.samples=[1,10]", "seeds=[0,1]", "sizes=[50]", *words.split(),
    )  # fmt: skip
    grid = betas(compose(["dataset=abalone", *words.split()]).beta, 50)
    for some in made:
        assert len({replace(cell, beta=None).key for cell in some.cells}) == 1
        assert [cell.beta for cell in some.cells] == (grid if some.method != "elbo" else [1.0])
    count = Counter(some.method for some in made)
    assert count == {"elbo": 4, "joint_log_dlm": 4, "fixed_log_dlm": 4}, "elbo: asked for, and as the base of the fixed"


def test_estimators_are_for_log_loss_alone_and_lists_are_swept():
    cells = _cells(
        "dataset=abalone", "method=[elbo,joint_log_dlm]", "estimator=[exact,bmc,ups]", "estimator.bmc.samples=[1,10]",
        "beta=list", "beta.values=[1]", "seeds=[0]", "sizes=[50]",
    )  # fmt: skip
    made = {(c.objective, c.estimator, c.samples): c.lr for c in cells}
    assert made == {
        ("elbo", "exact", None): 0.1, ("log_dlm", "exact", None): 0.1, ("log_dlm", "bmc", 1): 0.1,
        ("log_dlm", "bmc", 10): 0.1, ("log_dlm", "ups", 10): 0.01,
    }  # fmt: skip


def test_regression_uses_closed_forms_unless_told_not_to():
    words = ["dataset=cadata", "beta=list", "beta.values=[1]", "seeds=[0]", "sizes=[50]"]
    words.append("method=[elbo,fitc,joint_sq_dlm,fixed_sq_dlm,joint_log_dlm,fixed_log_dlm]")
    forms = {(c.variant, c.objective): c.form for c in _cells(*words)}
    assert forms == {
        ("joint", "elbo"): "collapsed", ("joint", "fitc"): "collapsed", ("joint", "sq_dlm"): "collapsed",
        ("fixed", "sq_dlm"): "collapsed", ("joint", "log_dlm"): "explicit", ("fixed", "log_dlm"): "explicit",
    }  # fmt: skip
    explicit = {(c.variant, c.objective): c.form for c in _cells(*words, "collapsed=false")}
    assert explicit["joint", "elbo"] == "explicit"


def test_minibatches_where_there_are_more_rows_than_that():
    words = ["dataset=cadata", "method=[elbo,joint_log_dlm]", "beta=1", "seeds=[0]", "sizes=[6000,6001]"]
    words.append("training.regression.minibatch_lr=0.001")
    cells = _cells(*spelled_out(words), rows=10_000)
    assert {(cell.objective, cell.n): (cell.minibatch, cell.lr) for cell in cells} == {
        ("log_dlm", 6000): (None, 0.1), ("log_dlm", 6001): (6000, 1e-3),
        ("elbo", 6000): (None, 0.1), ("elbo", 6001): (None, 0.1),  # closed forms see all rows
    }  # fmt: skip


def test_gradient_cells():
    cells = _cells("experiment=bias", "seeds=[0]", rows=4000)
    gradients = [c for c in cells if c.kind == "gradient"]
    assert Counter(c.parameterisation for c in gradients) == {"whitened": 9, "unwhitened": 9}
    assert {c.kind for c in cells if c.variant == "joint"} == {"fit"}


FLOOR = "training.regression.noise_floor=0.01"


@pytest.mark.slow
def test_a_floor_of_the_noise_is_a_setting_of_every_cell_and_in_no_key_without_it():
    words = ["dataset=pol", "sizes=[60]", "seeds=[0]", "method=[elbo,fitc,joint_log_dlm,fixed_log_dlm]"]
    free, floored = _cells(*words), _cells(*words, FLOOR)
    assert {cell.noise_floor for cell in floored} == {0.01}
    assert not {cell.key for cell in free} & {cell.key for cell in floored}
    bases = {cell.key: cell for cell in floored if cell.objective == "elbo"}
    assert {bases[cell.base].noise_floor for cell in floored if cell.base} == {0.01}
    assert [replace(cell, noise_floor=None) for cell in floored if not cell.base] == [c for c in free if not c.base]
    assert _cells(*words, "training.regression.noise_floor=null") == free
    assert "noise>0.01" in floored[0].describe()


REFUSED = {  # what is typed: what the sentence names
    "dataset=banana sizes=[-5]": "size '-5'", "dataset=banana sizes=[0]": "size '0'",
    "dataset=banana sizes=[many]": "size 'many'", "dataset=banana sizes=['150%']": "150%",
    "dataset=banana evaluate=epoch": "evaluate=epoch", "dataset=banana training.binary.noise_floor=0.01": "banana",
    "dataset=pol sizes=[60] training.regression.noise_floor=0.1": "noise_floor=0.1",
    f"dataset=pol sizes=[60] training.regression.initial.noise=0.005 {FLOOR}": "0.005",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("typed", REFUSED)
def test_refused_by_name(typed):
    with pytest.raises(UserError, match=REFUSED[typed]):
        planned(*typed.split())


def test_a_base_that_gives_no_hyperparameters(tmp_path):
    (tmp_path / "method").mkdir()
    text = "# @package method.mine\nobjective: log_dlm\nvariant: fixed\nbase: fitc\n"
    (tmp_path / "method" / "mine.yaml").write_text(text)
    with extended(str(tmp_path)), pytest.raises(UserError, match="base=fitc"):
        planned("dataset=cadata", "method=[mine]", "sizes=[50]")


def test_a_fixed_variant_takes_its_hyperparameters_from_the_method_it_names():
    words = ["dataset=cadata", "method=[dlm_elbo_q,fixed_log_dlm]", "sizes=[50]", "seeds=[0]", "beta.values=[1,0.1]"]
    by_method = {some.method: some.cells for some in planned(*words)}
    assert set(by_method) == {"ppgpr", "elbo", "dlm_elbo_q", "fixed_log_dlm"}
    (dlm,), (elbo,) = by_method["ppgpr"], by_method["elbo"]
    assert (dlm.objective, dlm.variant, dlm.form, dlm.beta) == ("log_dlm", "joint", "explicit", 1.0)
    assert {cell.base for cell in by_method["dlm_elbo_q"]} == {dlm.key}
    assert {cell.base for cell in by_method["fixed_log_dlm"]} == {elbo.key}
    assert all(cell.solved and cell.objective == "elbo" for cell in by_method["dlm_elbo_q"])  # q in closed form


def test_every_row_is_an_inducing_input_of_the_exact_gp():
    cells = _cells("dataset=cadata", "method=[elbo,exact]", "sizes=[50,80]", "seeds=[0]", "M=7")
    assert [(cell.objective, cell.n, cell.M) for cell in cells] == [
        ("elbo", 50, 7), ("exact", 50, 50), ("elbo", 80, 7), ("exact", 80, 80),
    ]  # fmt: skip
