"""The hints of our functions are checked while tests run."""

import pytest
import torch
from jaxtyping import TypeCheckError

from dlmexp.gp.posterior import kl


def test_a_wrong_shape_is_refused():
    m, L = torch.zeros(2, 3), torch.eye(3).expand(2, 3, 3)
    assert kl(m, L).shape == (2,)
    with pytest.raises(TypeCheckError, match="parameter 'L'"):
        kl(torch.zeros(2, 4), L)
