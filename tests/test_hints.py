"""The hints of our functions are checked while tests run."""

import pytest
import torch
from jaxtyping import TypeCheckError

from dlmexp.gp.posterior import kl
from tests.support.hints import CALLS


def test_a_wrong_shape_is_refused():
    m, L = torch.zeros(2, 3), torch.eye(3).expand(2, 3, 3)
    assert kl(m, L).shape == (2,)
    with pytest.raises(TypeCheckError, match="parameter 'L'"):
        kl(torch.zeros(2, 4), L)


def test_an_integer_tensor_is_refused():
    with pytest.raises(TypeCheckError, match="parameter 'm'"):
        kl(torch.zeros(2, 3, dtype=torch.int64), torch.eye(3).expand(2, 3, 3))


def test_only_the_first_calls_of_a_test_are_checked():
    m, L = torch.zeros(2, 3), torch.eye(3).expand(2, 3, 3)
    for _ in range(CALLS):
        kl(m, L)
    assert kl(m.to(torch.int64), L).shape == (2,)
