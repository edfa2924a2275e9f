"""Our Adam does what torch.optim.Adam does, cell by cell."""

import pytest
import torch

from dlmexp.training.state import Settings, State
from dlmexp.training.step import adam


def _problem(steps: int):
    g = torch.Generator().manual_seed(0)
    values = {
        "a": torch.randn(3, 4, 2, generator=g, dtype=torch.float64),
        "b": torch.randn(3, generator=g, dtype=torch.float64),
    }
    grads = [
        {name: torch.randn(value.shape, generator=g, dtype=torch.float64) * 10 for name, value in values.items()}
        for _ in range(steps)
    ]
    return values, grads


def _ours(values, grads, moves, lr, **how):
    settings = Settings(lr, iterations=1, window=None, **how)
    state = State.fresh(values, settings)
    for grad, move in zip(grads, moves, strict=True):
        state.steps += move
        adam(state, grad, move, settings)
    return state.values, state.first, state.second


def _torchs(value, grads, lr, epsilon=1e-8):
    parameter = torch.nn.Parameter(value.clone())
    optimiser = torch.optim.Adam([parameter], lr=lr, eps=epsilon)
    for grad in grads:
        parameter.grad = grad.clone()
        optimiser.step()
    return parameter.detach()


ALL = torch.ones(3, dtype=torch.bool)


@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 10.0])
def test_equals_torch(epsilon):
    values, grads = _problem(60)
    ours, _, _ = _ours(values, grads, [ALL] * 60, 0.1, epsilon=epsilon)
    for name, value in values.items():
        theirs = _torchs(value, [g[name] for g in grads], 0.1, epsilon)
        torch.testing.assert_close(ours[name], theirs, rtol=1e-12, atol=1e-12)


def test_the_default_epsilon_is_torchs():
    values, grads = _problem(5)
    tiny = [{name: 1e-9 * grad for name, grad in each.items()} for each in grads]
    ours, _, _ = _ours(values, tiny, [ALL] * 5, 0.1)
    torch.testing.assert_close(ours["a"], _torchs(values["a"], [g["a"] for g in tiny], 0.1), rtol=1e-12, atol=1e-12)


def test_with_a_resolution_the_step_is_the_nearest_multiple_of_it():
    values, grads = _problem(20)
    before, first, second = (part["a"] for part in _ours(values, grads[:-1], [ALL] * 19, 0.1, resolution=1 / 16))
    after = _ours(values, grads, [ALL] * 20, 0.1, resolution=1 / 16)[0]["a"]
    taken = (before - after) / 0.1
    torch.testing.assert_close(taken, torch.round(16 * taken) / 16, rtol=0, atol=1e-12)
    grad = grads[-1]["a"]
    m, v = (0.9 * first + 0.1 * grad) / (1 - 0.9**20), (0.999 * second + 0.001 * grad**2) / (1 - 0.999**20)
    assert (taken - m / (v.sqrt() + 1e-8)).abs().max() <= 1 / 32 + 1e-12
    assert taken.unique().numel() > 5


@pytest.mark.parametrize("resolution", [1 / 256, None])
def test_rounding_errors_of_the_gradient_do_not_enter_steps_with_a_resolution(resolution):
    """Some of the gradients are zero but for their rounding errors, as those of inducing inputs are at the start."""
    values, grads = _problem(40)
    g = torch.Generator().manual_seed(1)

    def rounded(grad):
        return grad * (torch.arange(3) != 1).view(3, 1, 1) + 1e-14 * torch.randn(3, 4, 2, generator=g).double()

    one, other = (
        _ours({"a": values["a"]}, [{"a": rounded(grad["a"])} for grad in grads], [ALL] * 40, 0.1,
              epsilon=1e-3, resolution=resolution)[0]["a"]
        for _ in range(2)
    )  # fmt: skip
    assert torch.equal(one, other) == (resolution is not None)
    assert torch.equal(one[1], values["a"][1]) == (resolution is not None)


def test_a_cell_that_does_not_move_misses_that_step_and_nothing_else():
    values, grads = _problem(20)
    moves = [torch.tensor([True, t % 3 != 0, t < 5]) for t in range(20)]
    ours, first, second = _ours(values, grads, moves, 0.05)
    for cell in range(3):
        seen = [g["a"][cell] for g, move in zip(grads, moves, strict=True) if move[cell]]
        torch.testing.assert_close(ours["a"][cell], _torchs(values["a"][cell], seen, 0.05), rtol=1e-12, atol=1e-12)
    stopped = _ours(values, grads[:5], moves[:5], 0.05)
    for after, before in zip((ours, first, second), stopped, strict=True):
        assert torch.equal(after["a"][2], before["a"][2])


def test_nan_of_a_stopped_cell_reaches_nobody():
    values, grads = _problem(8)
    clean, _, _ = _ours(values, grads, [torch.tensor([True, True, False])] * 8, 0.1)
    for grad in grads:
        grad["a"][2], grad["b"][2] = torch.nan, torch.inf
    dirty, first, second = _ours(values, grads, [torch.tensor([True, True, False])] * 8, 0.1)
    for name in values:
        assert torch.equal(clean[name], dirty[name])
        assert first[name].isfinite().all()
        assert second[name].isfinite().all()
