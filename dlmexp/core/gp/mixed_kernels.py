"""Kernels of tables with categories, and kernels with a linear term (docs/SPEC.md, section 1).

    k(x, x') = k_0(x, x') exp(-sum_c [x_c != x'_c] / l_c^2)
             + sum_d v_d x_d x'_d + sum_c v_c [x_c = x'_c]

The index d counts numeric features, c categorical ones ("categories"). `k_0` is any kernel of the
numeric features. Any two different levels of category c are equally far apart, whatever their
frequencies. As l_c grows, the influence of category c on the first term vanishes.

A category with I levels is I indicator features: 1 at the level of the row, 0 at all others. With
indicators e, `[x_c != x'_c] = |e - e'|^2 / 2` and `[x_c = x'_c] = e . e'`, so that the whole kernel
is computed by matrix products. Indicators of inducing inputs are learned and may be any numbers, so
that one inducing input can stand for several levels. The function remains a kernel, since both
terms are positive definite for any vectors e.

The name of the kernel says which features are indicators, so that records need no further setting:
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
"""The end of the name of a kernel with a linear term, before the sizes of categories."""
SIZES = re.compile(r"[1-9]\d{0,6}(_[1-9]\d{0,6})*", re.ASCII)
"""The sizes of categories in a name, after the @, such as `4_17`."""
LINEAR_VARIANCE = 0.1
"""The initial variance of a weight of the linear term."""


def is_mixed(name: str) -> bool:
    """Return whether a name is the name of a kernel of this module."""
    return "@" in name or name.endswith(LINEAR)


def with_categories(name: str, sizes: tuple[int, ...]) -> str:
    """Return the name of a kernel for data whose last features are the indicators of categories.

    Args:
        name: A kernel without categories.
        sizes: The number of indicators of each category.
    """
    return f"{name}@{'_'.join(map(str, sizes))}" if sizes else name


def kernel_parts(name: str) -> tuple[str, bool, tuple[int, ...]]:
    """Return the three parts of the name of a kernel.

    These are the name of the kernel of the numeric features, whether there is a linear term, and
    the number of levels of each category.

    Raises:
        UserError: What stands after the @ is not a list of numbers.
    """
    without_sizes, separator, text_of_sizes = name.partition("@")
    if separator and not SIZES.fullmatch(text_of_sizes):
        raise UserError(
            f"kernel={name}: give the number of levels of each category after @, as in "
            f"{without_sizes}@4_17"
        )
    sizes = tuple(map(int, text_of_sizes.split("_"))) if separator else ()
    return without_sizes.removesuffix(LINEAR), without_sizes.endswith(LINEAR), sizes


class Mixed(Kernel):
    """A kernel of the numeric features, a factor of each category, and a linear term.

    Its parameters are those of the kernel of the numeric features, category_lengthscale [B, C], and
    linear_variance with an entry for each numeric feature and each category.

    Args:
        base: The kernel of the numeric features, k_0.
        linear: Whether there is a linear term.
        sizes: The number of levels of each category.
    """

    def __init__(self, base: Kernel, linear: bool, sizes: tuple[int, ...]):
        name = base.name + LINEAR if linear else base.name
        super().__init__(with_categories(name, sizes))
        self.base = base
        self.linear = linear
        self.sizes = sizes
        self.indicator_count = sum(sizes)
        # In other kernels these are class variables; here they depend on the base.
        self.stationary = base.stationary and not linear  # pyright: ignore[reportAttributeAccessIssue]
        self.capturable = base.capturable  # pyright: ignore[reportAttributeAccessIssue]

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Return the hyperparameters on D features, indicators included.

        Raises:
            UserError: There are more indicators than features.
        """
        numeric_count = D - self.indicator_count
        if numeric_count < 0:
            raise UserError(
                f"kernel={self.name}: it needs {self.indicator_count} features, not {D}"
            )
        parameters = dict(self.base.parameters(numeric_count, ard))
        lengthscale = parameters.get("lengthscale")
        if lengthscale is not None and lengthscale.initial == 1.0:
            # Rows of D features of variance 1 are about sqrt(2 D) apart: with a lengthscale of
            # sqrt(D), the exponent of the RBF kernel between them starts at about -1.
            initial = max(1.0, math.sqrt(numeric_count))
            parameters["lengthscale"] = replace(lengthscale, initial=initial)
        if numeric_count == 0:
            # Without numeric features, k_0 is its value at distance 0: the outputscale.
            parameters = {"outputscale": parameters["outputscale"]}
        category_count = len(self.sizes)
        if category_count:
            # With l_c = sqrt(C), rows that differ in a share p of the C categories start with
            # exp(-p) of the covariance, however many categories there are.
            initial = math.sqrt(category_count)
            parameters["category_lengthscale"] = Parameter(
                initial, positive=True, shape=(category_count,)
            )
        if self.linear:
            parameters["linear_variance"] = Parameter(
                LINEAR_VARIANCE, positive=True, shape=(numeric_count + category_count,)
            )
        return parameters

    def __call__(
        self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper
    ) -> Float[Tensor, "B M N"]:
        """Return the kernel matrix [B, M, N]."""
        numeric_count = X1.shape[-1] - self.indicator_count
        numeric_X1 = X1[..., :numeric_count]
        # Two slices of one tensor would be different objects, but a kernel may have to know that
        # both of its arguments are the same one (`kernels._takes_triton`).
        numeric_X2 = numeric_X1 if X2 is X1 else X2[..., :numeric_count]
        if numeric_count:
            K = self.base(numeric_X1, numeric_X2, hyper)
        else:
            K = hyper["outputscale"][..., None, None]
        if self.sizes:
            left, right = self._similarity_factors(
                X1[..., numeric_count:], X2[..., numeric_count:], hyper
            )
            K = K * _Similarity.apply(left, right)
        if self.linear:
            variance = self._variance_by_feature(hyper, numeric_count)
            K = K + (X1 * variance) @ X2.mT
        return K

    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        """Return k(x, x) of every row [B, N]."""
        numeric_count = X.shape[-1] - self.indicator_count
        if numeric_count:
            diagonal = self.base.diagonal(X[..., :numeric_count], hyper)
        else:
            diagonal = hyper["outputscale"][..., None].expand(*X.shape[:-1])
        if not self.linear:
            return diagonal
        variance = self._variance_by_feature(hyper, numeric_count)
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
        e2_by_category = e2.split(self.sizes, -1)
        squares = [e2_c.square().sum(-1, keepdim=True) for e2_c in e2_by_category]
        right = torch.cat([e2, *squares, torch.ones_like(squares[0])], -1)
        return left, right

    def _variance_by_feature(self, hyper: Hyper, numeric_count: int) -> Float[Tensor, "B 1 D"]:
        """Return the variance of the weight of every feature, indicators included."""
        variance = hyper["linear_variance"]
        variance_by_indicator = self._by_indicator(variance[..., numeric_count:])
        by_feature = torch.cat([variance[..., :numeric_count], variance_by_indicator], -1)
        return by_feature.unsqueeze(-2)

    def _by_indicator(self, values: Float[Tensor, "*B C"]) -> Float[Tensor, "*B I"]:
        """Return, for every indicator, the value of its category."""
        if not self.sizes:
            return values
        repeated_values = []
        for category, size in enumerate(self.sizes):
            value = values[..., category : category + 1]
            repeated_values.append(value.expand(*values.shape[:-1], size))
        return torch.cat(repeated_values, -1)


class _Similarity(torch.autograd.Function):
    """(left, right) -> exp(left right^T), at most 1.

    The result is the only array of its size that is kept for the backward pass.
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
        # K = exp(E), so dE = dK * K
        d_E = grads[0] * K
        d_left = d_E @ right if ctx.needs_input_grad[0] else None
        d_right = d_E.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right


@lru_cache(maxsize=64)
def mixed_kernel(base: Kernel, linear: bool, sizes: tuple[int, ...]) -> Mixed:
    """Return the kernel with these parts: the same object whenever the parts are the same."""
    return Mixed(base, linear, sizes)
