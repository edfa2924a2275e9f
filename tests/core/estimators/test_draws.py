"""Counter-based draws: pinned, independent, and the same in any batch."""

import numpy as np
import pytest
import scipy.stats as st
import torch

from dlmexp.core.estimators.draws import Draws


def draws(seeds, iteration=0, dtype=torch.float64) -> Draws:
    seeds = torch.as_tensor(seeds)
    return Draws(seeds, torch.arange(len(seeds)), torch.tensor(iteration), dtype)


def test_first_numbers_are_pinned_on_every_platform():
    u = draws([0, 7], iteration=3).uniform(2, 2, stream=1)
    assert u[0].flatten().tolist() == [
        0.7027828912220865,
        0.5172936638845739,
        0.2134444230735374,
        0.7814460630275967,
    ]
    assert u[1].flatten().tolist() == [
        0.10700414841627659,
        0.3875634286711075,
        0.5760860131253597,
        0.7580901176395899,
    ]


def test_transforms_and_entries_are_those_of_the_uniforms():
    d = Draws(torch.tensor([5, 9]), torch.tensor([0, 1, 1]), torch.tensor(4))
    uniform = d.uniform(4, 15, stream=1)
    squares, first = d.transformed(lambda u: (u.square(), u[:, :1]), 4, 15, stream=1)
    assert torch.equal(squares, uniform.square())
    assert torch.equal(first, uniform[:, :1])
    entries = torch.tensor([0, 17, 59, 60, 95, 179])
    assert torch.equal(d.uniform_at(entries, 4, 15, stream=1), uniform.flatten()[entries])


@pytest.mark.parametrize("kind", ["uniform", "normal"])
def test_cell_gets_the_same_numbers_in_any_batch_and_of_any_length(kind):
    batch = Draws(torch.tensor([5, 9]), torch.tensor([0, 1, 1, 0]), torch.tensor(4))
    whole = getattr(batch, kind)(7, 30, stream=2)
    alone = getattr(draws([9], 4), kind)(4, 11, stream=2)
    assert whole.shape == (4, 7, 30)
    assert torch.equal(whole[1], whole[2])
    assert torch.equal(whole[0], whole[3])
    assert torch.equal(whole[1, :4, :11], alone[0])


@pytest.mark.parametrize("change", ["seed", "iteration", "stream", "sample", "row", "kind"])
def test_numbers_are_unrelated_whatever_changes(change):
    n = 40_000
    first = draws([0]).uniform(1, n)[0, 0]  # whatever the number of samples and rows
    second = {
        "seed": lambda: draws([1]).uniform(1, n)[0, 0],
        "iteration": lambda: draws([0], iteration=1).uniform(1, n)[0, 0],
        "stream": lambda: draws([0]).uniform(1, n, stream=1)[0, 0],
        "sample": lambda: draws([0]).uniform(2, n)[0, 1],
        "row": lambda: draws([0]).uniform(1, n + 1)[0, 0, 1:],
        "kind": lambda: torch.special.ndtr(draws([0]).normal(1, n)[0, 0]),
    }[change]()
    # Independence on a 16 x 16 grid of cells, expected 156 each; a correlation of 0.03 would be
    # seen.
    table = np.histogram2d(first.numpy(), second.numpy(), bins=16, range=[[0, 1], [0, 1]])[0]
    assert st.chisquare(table.ravel()).pvalue > 1e-3
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / np.sqrt(n)


def test_normals_are_standard_normal_and_pairs_are_independent():
    z = draws(range(5)).normal(11, 4000)
    assert z.shape == (5, 11, 4000)
    assert st.kstest(z.flatten().numpy(), "norm").pvalue > 1e-3
    # The two ends of one Box-Muller pair.
    a = z[:, 0].flatten().numpy()
    b = z[:, 1].flatten().numpy()
    assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(len(a))
    assert abs(np.corrcoef(a**2, b**2)[0, 1]) < 4 / np.sqrt(len(a))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ends_are_never_reached(dtype):
    u = draws(range(4), dtype=dtype).uniform(100, 5000)
    assert u.dtype == dtype
    assert u.min() > 0
    assert u.max() < 1


def test_fresh_draws_have_the_batch_shape_and_follow_torchs_seed():
    def numbers() -> torch.Tensor:
        torch.manual_seed(1)
        return Draws.fresh((2, 3)).uniform(100, 100)

    assert numbers().shape == (2, 3, 100, 100)
    assert torch.equal(numbers(), numbers())
    assert Draws.fresh((2, 3)).uniform_at(torch.arange(7), 4, 5).shape == (7,)
    assert Draws.fresh().normal(4, 5).shape == (4, 5)
    assert st.kstest(numbers().flatten().numpy(), "uniform").pvalue > 1e-3
