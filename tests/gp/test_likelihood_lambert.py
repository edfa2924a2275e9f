import numpy as np
import torch
from scipy.special import lambertw

from dlmexp.gp.likelihoods.lambert import lambert_w_exp


def test_against_scipy_where_e_to_the_t_is_a_number():
    t = np.linspace(-600, 600, 4001)
    np.testing.assert_allclose(lambert_w_exp(torch.tensor(t)).numpy(), lambertw(np.exp(t)).real, rtol=1e-12)


def test_defining_equation_where_it_is_not():
    t = torch.logspace(3, 9, 61, dtype=torch.float64)
    w = lambert_w_exp(t)
    torch.testing.assert_close(w + w.log(), t, rtol=1e-14, atol=0)
    smallest = torch.full_like(t, torch.finfo(t.dtype).tiny)
    torch.testing.assert_close(lambert_w_exp(-t), smallest, rtol=1e-12, atol=0)
