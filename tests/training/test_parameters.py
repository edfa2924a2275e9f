"""From the values that Adam moves to constrained ones, and back."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.training.program import constrain, unconstrain, unsoftplus


@given(st.floats(1e-8, 1e8))
def test_unsoftplus_inverts_softplus(x):
    x = torch.tensor(x, dtype=torch.float64)
    torch.testing.assert_close(torch.nn.functional.softplus(unsoftplus(x)), x, rtol=1e-8, atol=0)


def test_there_and_back():
    g = torch.Generator().manual_seed(0)
    positive = torch.rand(3, 4, generator=g, dtype=torch.float64) + 0.01
    names = ("lengthscale", "outputscale", "noise")
    constrained: dict[str, torch.Tensor] = dict(zip(names, positive, strict=True))
    constrained["mean"] = torch.randn(4, generator=g, dtype=torch.float64)
    constrained["Z"] = torch.randn(4, 3, 2, generator=g, dtype=torch.float64)
    back = constrain(unconstrain(constrained, names), names)
    assert back.keys() == constrained.keys()
    for name, value in constrained.items():
        torch.testing.assert_close(back[name], value, rtol=1e-12, atol=0)


def test_only_the_lower_triangle_of_q_counts():
    raw = torch.arange(9.0).reshape(1, 3, 3)
    assert torch.equal(constrain({"L": raw}, ())["L"], raw.tril())
