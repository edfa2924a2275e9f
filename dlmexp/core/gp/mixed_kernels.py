"""Kernels of tables with categories, and kernels with a linear term (docs/SPEC.md, section 1).

    k(x, x') = k_0(x, x') exp(-sum_c [x_c != x'_c] / l_c^2)
             + sum_d v_d x_d x'_d + sum_c v_c [x_c = x'_c]

The index d counts numeric features ("numbers"), c categorical ones ("categories"). `k_0` is any
kernel of the numbers. Any two different levels of category c are equally far apart, whatever their
frequencies. As l_c grows, the influence of category c in the first term vanishes.

A category with I levels is I indicator features: 1 at the level of the row, 0 at all others. With
indicators e, `[x_c != x'_c] = |e - e'|^2 / 2` and `[x_c = x'_c] = e . e'`, so that the whole kernel
is computed by matrix products. Indicators of inducing inputs are learned and may be any numbers, so
that one inducing input can stand for several levels. This remains a kernel, since both terms are
positive definite functions of any vectors e.

The name says which features are indicators, so that records need no further setting:
`matern52+linear@4_17` has two categories, whose indicators are the last 4 + 17 features.
"""

import math
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.gp.kernels import Hyper, Kernel, Parameter
from dlmexp.core.gp.special import once_differentiable

LINEAR = "+linear"
SIZES = re.compile(r"[1-9]\d{0,6}(_[1-9]\d{0,6})*", re.ASCII)
LINEAR_VARIANCE = 0.1
"""The initial variance of a weight of the linear term."""


def is_mixed(name: str) -> bool:
    """Return whether a name is that of a kernel of this module."""
    return "@" in name or name.endswith(LINEAR)


def with_categories(name: str, sizes: tuple[int, ...]) -> str:
    """Return the name of a kernel for data whose last features are the indicators of categories.

    Args:
        name: A kernel without categories.
        sizes: The number of indicators of each category.
    """
    return f"{name}@{'_'.join(map(str, sizes))}" if sizes else name


def split_name(name: str) -> tuple[str, bool, tuple[int, ...]]:
    """Return the kernel of the numbers, whether there is a linear term, and the categories' sizes.

    Raises:
        UserError: The sizes are not numbers.
    """
    without_sizes, at, typed_sizes = name.partition("@")
    if at and not SIZES.fullmatch(typed_sizes):
        raise UserError(
            f"kernel={name}: after @ stand the numbers of levels of the categories, as in "
            f"{without_sizes}@4_17"
        )
    sizes = tuple(map(int, typed_sizes.split("_"))) if at else ()
    return without_sizes.removesuffix(LINEAR), without_sizes.endswith(LINEAR), sizes


class Mixed(Kernel):
    """A kernel of the numbers, a factor of each category, and a linear term.

    Its parameters are those of the kernel of the numbers, category_lengthscale [B, C], and
    linear_variance with an entry per number and per category.

    Args:
        base: The kernel of the numbers, k_0.
        linear: Whether there is a linear term.
        sizes: The number of levels of each category.
    """

    def __init__(self, base: Kernel, linear: bool, sizes: tuple[int, ...]):
        name = base.name + LINEAR if linear else base.name
        super().__init__(with_categories(name, sizes))
        self.base = base
        self.linear = linear
        self.sizes = sizes
        self.indicators = sum(sizes)
        # In other kernels these are class variables; here they depend on the base.
        self.stationary = base.stationary and not linear  # pyright: ignore[reportAttributeAccessIssue]
        self.capturable = base.capturable  # pyright: ignore[reportAttributeAccessIssue]

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Return the hyperparameters on D features, indicators included.

        Raises:
            UserError: There are more indicators than features.
        """
        numbers = D - self.indicators
        if numbers < 0:
            raise UserError(f"kernel={self.name}: it needs {self.indicators} features, not {D}")
        parameters = dict(self.base.parameters(numbers, ard))
        lengthscale = parameters.get("lengthscale")
        if lengthscale is not None and lengthscale.initial == 1.0:
            # Rows of D numbers of variance 1 are about sqrt(2 D) apart.
            initial = max(1.0, math.sqrt(numbers))
            parameters["lengthscale"] = replace(lengthscale, initial=initial)
        if numbers == 0:
            # Without numbers, k_0 is its value at distance 0: the outputscale.
            parameters = {"outputscale": parameters["outputscale"]}
        categories = len(self.sizes)
        if categories:
            # At the start, rows that differ in about half of the categories or more have roughly
            # half the covariance, however many categories there are.
            initial = math.sqrt(categories)
            parameters["category_lengthscale"] = Parameter(
                initial, positive=True, shape=(categories,)
            )
        if self.linear:
            parameters["linear_variance"] = Parameter(
                LINEAR_VARIANCE, positive=True, shape=(numbers + categories,)
            )
        return parameters

    def __call__(
        self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper
    ) -> Float[Tensor, "B M N"]:
        """Return the kernel matrix [B, M, N]."""
        numbers = X1.shape[-1] - self.indicators
        X1_numbers = X1[..., :numbers]
        X2_numbers = X1_numbers if X2 is X1 else X2[..., :numbers]
        if numbers:
            K = self.base(X1_numbers, X2_numbers, hyper)
        else:
            K = hyper["outputscale"][..., None, None]
        if self.sizes:
            left, right = self._similarity_factors(X1[..., numbers:], X2[..., numbers:], hyper)
            K = K * _Similarity.apply(left, right)
        if self.linear:
            variance = self._variance_by_feature(hyper, numbers)
            K = K + (X1 * variance) @ X2.mT
        return K

    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        """Return k(x, x) of every row [B, N]."""
        numbers = X.shape[-1] - self.indicators
        if numbers:
            diagonal = self.base.diagonal(X[..., :numbers], hyper)
        else:
            diagonal = hyper["outputscale"][..., None].expand(*X.shape[:-1])
        if not self.linear:
            return diagonal
        variance = self._variance_by_feature(hyper, numbers)
        return diagonal + (X.square() @ variance.mT).squeeze(-1)

    def _similarity_factors(
        self, e1: Float[Tensor, "B M I"], e2: Float[Tensor, "B N I"], hyper: Hyper
    ) -> tuple[Float[Tensor, "B M F"], Float[Tensor, "B N F"]]:
        """Return left and right with `left right^T = -sum_c |e1_c - e2_c|^2 / (2 l_c^2)`.

        Only `left`, which has M rows, depends on the lengthscales, as in `kernels`.
        """
        # w_c = 1 / l_c^2
        weight = hyper["category_lengthscale"].square().reciprocal().unsqueeze(-2)
        # left = [w e1, -w_c / 2, -sum_c w_c |e1_c|^2 / 2],  right = [e2, |e2_c|^2, 1]
        scaled = e1 * self._by_indicator(weight)
        norm = (scaled * e1).sum(-1, keepdim=True)
        half_weight = (-0.5 * weight).expand(*e1.shape[:-1], -1)
        left = torch.cat([scaled, half_weight, -0.5 * norm], -1)
        squares = [part.square().sum(-1, keepdim=True) for part in e2.split(self.sizes, -1)]
        right = torch.cat([e2, *squares, torch.ones_like(squares[0])], -1)
        return left, right

    def _variance_by_feature(self, hyper: Hyper, numbers: int) -> Float[Tensor, "B 1 D"]:
        """Return the variance of the weight of every feature."""
        variance = hyper["linear_variance"]
        by_indicator = self._by_indicator(variance[..., numbers:])
        return torch.cat([variance[..., :numbers], by_indicator], -1).unsqueeze(-2)

    def _by_indicator(self, values: Float[Tensor, "*B C"]) -> Float[Tensor, "*B I"]:
        """Return, for every indicator, the value of its category."""
        if not self.sizes:
            return values
        parts = []
        for category, size in enumerate(self.sizes):
            of_category = values[..., category : category + 1]
            parts.append(of_category.expand(*values.shape[:-1], size))
        return torch.cat(parts, -1)


class _Similarity(torch.autograd.Function):
    """(left, right) -> exp(left right^T), at most 1.

    Of this size, only the result is kept for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        # Rounding can leave the exponent a little above 0 where the levels are equal.
        K = torch.matmul(left, right.mT).clamp_(max=0).exp_()
        ctx.save_for_backward(left, right, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right, K = ctx.saved_tensors
        d_E = grads[0] * K
        d_left = d_E @ right if ctx.needs_input_grad[0] else None
        d_right = d_E.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right


@lru_cache(maxsize=64)
def mixed_kernel(base: Kernel, linear: bool, sizes: tuple[int, ...]) -> Mixed:
    """Return the kernel with these parts; the same object for the same parts."""
    return Mixed(base, linear, sizes)
