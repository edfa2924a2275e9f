"""Our Adam does what torch.optim.Adam does, cell by cell."""

import torch

from dlmexp.training.adam import adam


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


def _ours(values, grads, moves, lr):
    values = {name: value.clone() for name, value in values.items()}
    first = {name: torch.zeros_like(value) for name, value in values.items()}
    second = {name: torch.zeros_like(value) for name, value in values.items()}
    steps = torch.zeros(3, dtype=torch.int64)
    for grad, move in zip(grads, moves, strict=True):
        steps += move
        adam(values, grad, first, second, steps.clamp(min=1), move, lr)
    return values, first, second


def _torchs(value, grads, lr):
    parameter = torch.nn.Parameter(value.clone())
    optimiser = torch.optim.Adam([parameter], lr=lr)
    for grad in grads:
        parameter.grad = grad.clone()
        optimiser.step()
    return parameter.detach()


def test_equals_torch():
    values, grads = _problem(60)
    ours, _, _ = _ours(values, grads, [torch.ones(3, dtype=torch.bool)] * 60, 0.1)
    for name, value in values.items():
        torch.testing.assert_close(ours[name], _torchs(value, [g[name] for g in grads], 0.1), rtol=1e-12, atol=1e-13)


def test_a_cell_that_does_not_move_misses_that_step_and_nothing_else():
    values, grads = _problem(20)
    moves = [torch.tensor([True, t % 3 != 0, t < 5]) for t in range(20)]
    ours, first, second = _ours(values, grads, moves, 0.05)
    for cell in range(3):
        seen = [g["a"][cell] for g, move in zip(grads, moves, strict=True) if move[cell]]
        torch.testing.assert_close(ours["a"][cell], _torchs(values["a"][cell], seen, 0.05), rtol=1e-12, atol=1e-13)
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
