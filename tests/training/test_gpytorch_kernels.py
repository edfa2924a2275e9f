"""Models with GPyTorch's kernels train like any other: joint, fixed, collapsed; a batch is its cells one by one."""

import numpy as np
import pytest
import torch

from dlmexp.estimators import Exact
from dlmexp.training.state import Settings, State
from dlmexp.training.variants import Fixed, solve
from tests.support.small_programs import held, program, trained

pytestmark = pytest.mark.slow

KERNELS = [f"gpytorch.kernels.{name}Kernel" for name in ("Periodic", "RQ", "Linear")]
STEPS = Settings(lr=0.05, iterations=5, window=None)
HOW = {
    "joint": {"likelihood": "probit", "estimator": Exact()},
    "fixed": {"likelihood": "probit", "estimator": Exact()},
    "collapsed": {"likelihood": "gaussian", "objective": "elbo"},
}


def _program(kind, kernel, ard=False, **how):
    made = program("joint" if kind == "fixed" else kind, index=(0, 0, 1), kernel=kernel, ard=ard, **how)
    if kind != "fixed":
        return made
    lines, ours = len(made.split.seeds), held(len(made.split.seeds))
    hyper = {name: parameter.start(ours["Z"], lines) for name, parameter in made.parameters.items()}
    return Fixed(made.model, made.split, made.beta, hyper | {name: ours[name] for name in ("Z", "mean")})


@pytest.mark.parametrize("whitened", [True, False])
@pytest.mark.parametrize("kind", HOW)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_batch_is_its_cells_one_by_one(kernel, kind, whitened):
    made = _program(kind, kernel, ard=whitened, whitened=whitened, **HOW[kind])
    together = trained(made, STEPS)
    if whitened:
        assert together[2].objective[-1] < together[2].objective[0]
    for i in range(3):
        alone = trained(made.keep([i]), STEPS)[0]
        assert not alone.failed
        assert together[i].objective == pytest.approx(alone.objective, rel=1e-8)
        for name, value in alone.hyperparameters.items():
            np.testing.assert_allclose(together[i].hyperparameters[name], value, rtol=1e-6, atol=1e-8, err_msg=name)
        assert together[i].metrics["test"] == pytest.approx(alone.metrics["test"], rel=1e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_its_parameters_are_learned_and_kept(kernel):
    made = _program("joint", kernel)
    initial = made.initial()
    own = [name for name in initial if name.startswith("kernel.")]
    assert own
    assert not made.capturable
    finished = trained(made, STEPS)[0]
    for name in own:
        assert not np.array_equal(finished.hyperparameters[name], initial[name][0].numpy())
    state = State.fresh(initial, STEPS)
    back = State.from_arrays(state.arrays(), torch.device("cpu"))
    assert all(torch.equal(back.values[name], initial[name]) for name in initial)


def test_square_loss_with_fixed_hyperparameters():
    made = _program("fixed", KERNELS[1], likelihood="gaussian", objective="sq_dlm")
    assert isinstance(made, Fixed)
    together = list(solve(made))
    one = made.keep([2])
    assert isinstance(one, Fixed)
    (alone,) = solve(one)
    assert together[2].metrics["test"] == pytest.approx(alone.metrics["test"], rel=1e-9)
