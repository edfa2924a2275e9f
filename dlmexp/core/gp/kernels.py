"""Kernels over batches of cells (docs/SPEC.md, section 1): what one is with its hyperparameters,
the stationary ones at one exponential per entry, and any of GPyTorch's.

A stationary one is a function of `E = -|x - z|^2 / (2 l^2)`, and `E` is a single matrix product:
with `left = [z / l^2, -1/(2 l^2), -|z|^2 / (2 l^2)]` and `right = [x, |x|^2, 1]`, `E = left
right^T` (with ARD, `|x|^2` is one column per feature). So all parameters enter through `left`,
which has M rows, and the one product `dE right` brings every gradient back to it. Of shape [B, M,
N], only K itself is kept for the backward pass (Matern: and its slope)."""

import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.gp.fused import fused
from dlmexp.core.gp.special import once_differentiable

Hyper = Mapping[str, Tensor]
"""Constrained values by name, B cells each: Z [B,M,D], mean [B], and what the kernel and the likelihood declare."""


@dataclass(frozen=True)
class Parameter:
    """A learned hyperparameter, one of shape [*shape] per cell. `initial` is a number or a tensor
    of that shape.

    A positive one is trained through softplus, and stays above `floor`."""

    initial: float | Tensor
    positive: bool = False
    shape: tuple[int, ...] = ()
    floor: float = 0.0

    def start(self, like: Tensor, B: int, initial: float | None = None) -> Tensor:
        """The initial value of B cells [B, *shape], or `initial` in its place; dtype and device as
        `like`."""
        value = self.initial if initial is None else initial
        if isinstance(value, Tensor):
            return value.to(like).expand(B, *self.shape).clone()
        return like.new_full((B, *self.shape), value)


class Kernel(ABC):
    """k(x, x') over batches of cells, with the facts that the rest asks for.

    A new one is a class with these three methods, and a line that registers it: `KERNELS.add("rbf",
    RBF("rbf"))`."""

    stationary: ClassVar[bool] = False  # the diagonal is the same at every input
    capturable: ClassVar[bool] = (
        True  # does the same operations whatever the values, as a CUDA graph needs
    )

    def __init__(self, name: str):
        self.name = name

    @abstractmethod
    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Its hyperparameters on D features, by name; `ard`: one lengthscale per feature."""

    @abstractmethod
    def __call__(
        self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper
    ) -> Float[Tensor, "B M N"]:
        """The kernel matrix."""

    @abstractmethod
    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        """k(x, x) of every row."""

    def trace(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B"]:
        """The sum of k(x, x) over the rows."""
        if self.stationary:
            return X.shape[-2] * self.diagonal(X[..., :1, :], hyper).squeeze(-1)
        return self.diagonal(X, hyper).sum(-1)


KERNELS: Registry[Kernel] = Registry("kernel", "dlmexp.core.gp.kernels")
PROBE = (
    7  # cells of a trial batch of a GPyTorch kernel; none of its parameters has this size by itself
)


class Stationary(Kernel):
    """A function of `E = -|x - x'|^2 / (2 l^2)` times the outputscale: lengthscale [B,1] or [B,D],
    outputscale [B]."""

    stationary: ClassVar[bool] = True

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        return {
            "lengthscale": Parameter(1.0, positive=True, shape=(D if ard else 1,)),
            "outputscale": Parameter(1.0, positive=True),
        }

    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        return hyper["outputscale"][..., None].expand(*X.shape[:-1])


class RBF(Stationary):
    """`s exp(-|x - x'|^2 / 2 l^2)`."""

    def __call__(self, X1: Tensor, X2: Tensor, hyper: Hyper) -> Float[Tensor, "B M N"]:
        if fused(X1) and (X1 is X2 or not X2.requires_grad):
            return _fused(X1, X2, hyper, matern=False)
        left, right = _factors(X1, X2, hyper["lengthscale"])
        # s joins the exponent, in the column of left that meets right's ones: its gradient then
        # comes with the others.
        s = torch.nn.functional.pad(
            hyper["outputscale"].log()[..., None, None], (left.shape[-1] - 1, 0)
        )
        return _Exponential.apply(left + s, right)  # pyright: ignore[reportReturnType]


class Matern52(Stationary):
    """`s (1 + u + u^2 / 3) exp(-u)` with `u = sqrt(5) |x - x'| / l`."""

    def __call__(self, X1: Tensor, X2: Tensor, hyper: Hyper) -> Float[Tensor, "B M N"]:
        if fused(X1) and (X1 is X2 or not X2.requires_grad):
            return _fused(X1, X2, hyper, matern=True)
        left, right = _factors(X1, X2, hyper["lengthscale"])
        return _Matern52.apply(left, right, hyper["outputscale"])  # pyright: ignore[reportReturnType]


def fused_parameters(
    kernel: Kernel, hyper: Hyper, X: Tensor
) -> tuple[Tensor, Tensor, Tensor, bool] | None:
    """Z, lengthscale, outputscale and whether it is Matern's, where the functions of
    `fused.projected` compute this kernel between Z and constant inputs X."""
    if type(kernel) not in (RBF, Matern52) or not fused(hyper["Z"]) or X.requires_grad:
        return None
    return hyper["Z"], hyper["lengthscale"], hyper["outputscale"], type(kernel) is Matern52


rbf = KERNELS.add("rbf", RBF("rbf"))
matern52 = KERNELS.add("matern52", Matern52("matern52"))


def _factors(X1: Tensor, X2: Tensor, lengthscale: Tensor) -> tuple[Tensor, Tensor]:
    """left [B, M, F] and right [B, N, F] with `left right^T = -|x1 - x2|^2 / (2 l^2)`."""
    precision = lengthscale.square().reciprocal().unsqueeze(-2)
    scaled = X1 * precision
    size = (scaled * X1).sum(-1, keepdim=True)
    left = torch.cat([scaled, (-0.5 * precision).expand(*X1.shape[:-1], -1), -0.5 * size], -1)
    square = X2.square()
    if lengthscale.shape[-1] == 1:
        square = square.sum(-1, keepdim=True)
    return left, torch.cat([X2, square, torch.ones_like(X2[..., :1])], -1)


def _fused(Z: Tensor, X: Tensor, hyper: Hyper, matern: bool) -> Float[Tensor, "B M N"]:
    from dlmexp.core.gp.fused.stationary import StationaryMatrix

    return StationaryMatrix.apply(
        Z, None if Z is X else X, hyper["lengthscale"], hyper["outputscale"], matern
    )  # pyright: ignore[reportReturnType]


class _Exponential(torch.autograd.Function):
    """exp(left right^T), keeping its result and nothing else of that size."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        K = torch.matmul(left, right.mT).exp_()
        ctx.save_for_backward(left, right, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None]:
        left, right, K = ctx.saved_tensors
        G = grads[0] * K
        d_left = G @ right if ctx.needs_input_grad[0] else None
        d_right = G.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right


class _Matern52(torch.autograd.Function):
    """The Matern-5/2 kernel of E = left right^T. Its slope dK/dE = 5/3 s (1 + u) exp(-u) is finite
    at distance 0, where differentiating through the square root would give NaN."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, outputscale: Tensor) -> Tensor:
        # Rounding can leave E a little above 0 where the distance is 0.
        u = torch.matmul(left, right.mT).clamp_(max=0).mul_(-10).sqrt_()
        decay = torch.exp(-u).mul_(outputscale[..., None, None])
        slope = decay * (5 / 3)
        slope.addcmul_(u, slope)
        K = decay.mul_(u.square().mul_(1 / 3).add_(u).add_(1))
        ctx.save_for_backward(left, right, outputscale, K, slope)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, right, outputscale, K, slope = ctx.saved_tensors
        d_scale = (grads[0] * K).sum((-2, -1)) / outputscale if ctx.needs_input_grad[2] else None
        G = grads[0] * slope
        d_left = G @ right if ctx.needs_input_grad[0] else None
        d_right = G.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right, d_scale


def kernel_named(name: str, typed: bool = False) -> Kernel:
    """The kernel registered under that name, or the GPyTorch kernel class with that dotted path
    (`package.Class`); or one sentence about what is wrong with it. Only where the user has `typed`
    the path is its module imported; otherwise it must have been, as GPyTorch's own and those of
    plugins are."""
    if "." not in name:
        return KERNELS[name]
    with (
        warnings.catch_warnings()
    ):  # importing GPyTorch takes seconds, and warns of what it uses itself
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
    module_name, _, class_name = name.rpartition(".")
    if typed:
        try:
            import_module(module_name)
        except (
            ImportError,
            TypeError,
            ValueError,
        ) as error:  # the latter two: of names such as `..K`
            raise UserError(
                f"kernel={name}: there is no module '{module_name}' here ({error})"
            ) from error
    module = sys.modules.get(module_name)
    if module is None:
        raise UserError(
            f"kernel={name}: code is imported for a model only if you name it; where that is a module you trust, say "
            f"`dlmexp --plugins {module_name} COMMAND`, or import {module_name} in Python"
        )
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, gpytorch.kernels.Kernel)):
        raise UserError(
            f"kernel={name}: {module_name} has no such class that derives from gpytorch.kernels.Kernel"
        )
    return _of_gpytorch(name, cls)


class GPyTorchKernel(Kernel):
    """`s k(x, x')` with a GPyTorch kernel k, such as `gpytorch.kernels.PeriodicKernel` or a class
    of the user's own.

    The class is built with `batch_shape=[B]`, and its raw parameters are learned with the rest
    under the names `kernel.<name>`; what constrains them is the kernel's own affair. GPyTorch looks
    at values on the way, so no CUDA graph can capture it."""

    capturable = False

    def __init__(self, name: str, cls: type[Any]):
        super().__init__(name)
        self.cls = cls
        self._takes = inspect.signature(cls).parameters
        self._any = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in self._takes.values())
        try:
            probe = self._built(PROBE, None)
        except Exception as error:  # a class of anybody's can raise anything
            raise UserError(
                f"kernel={name} can't be made with a batch_shape alone ({error}): derive a class that can"
            ) from error
        for parameter, value in probe.named_parameters():
            if value.shape[:1] != (PROBE,):
                raise UserError(
                    f"kernel={name}: {parameter} does not begin with the batch_shape that it is given"
                )
        self._isotropic = {
            parameter: value.shape[1:] for parameter, value in probe.named_parameters()
        }

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        found = {
            name: Parameter(value.detach()[0].double(), shape=tuple(value.shape[1:]))
            for name, value in self._built(1, D if ard else None).named_parameters()
        }
        return {**found, "outputscale": Parameter(1.0, positive=True)}

    def __call__(self, X1: Tensor, X2: Tensor, hyper: Hyper) -> Float[Tensor, "B M N"]:
        return hyper["outputscale"][..., None, None] * self._evaluated(X1, X2, hyper, diag=False)

    def diagonal(self, X: Tensor, hyper: Hyper) -> Float[Tensor, "B N"]:
        return hyper["outputscale"][..., None] * self._evaluated(X, X, hyper, diag=True)

    def _evaluated(self, X1: Tensor, X2: Tensor, hyper: Hyper, diag: bool) -> Tensor:
        isotropic = all(hyper[name].shape[1:] == shape for name, shape in self._isotropic.items())
        module = self._module(len(X1), None if isotropic else X1.shape[-1], X1.dtype, X1.device)
        return functional_call(
            module, {name: hyper[name] for name, _ in module.named_parameters()}, (X1, X2, diag)
        )

    @lru_cache(maxsize=16)  # noqa: B019
    def _module(
        self, B: int, ard: int | None, dtype: torch.dtype, device: torch.device
    ) -> "_Evaluated":
        return self._built(B, ard).to(device=device, dtype=dtype)

    def options(self, ard: int | None) -> dict[str, Any]:
        """What the class is built with beside its batch shape; `ard` is the number of features with
        ARD."""
        return (
            {"ard_num_dims": ard}
            if ard is not None and (self._any or "ard_num_dims" in self._takes)
            else {}
        )

    def _built(self, B: int, ard: int | None) -> "_Evaluated":
        return _Evaluated(self.cls(batch_shape=torch.Size([B]), **self.options(ard)))


_of_gpytorch = cache(GPyTorchKernel)


class _Evaluated(torch.nn.Module):
    """The kernel as a module that returns a dense matrix (a lazy one would be evaluated after
    `functional_call`)."""

    def __init__(self, kernel: Any):
        super().__init__()
        self.kernel = kernel

    def forward(self, X1: Tensor, X2: Tensor, diag: bool) -> Tensor:
        K = self.kernel(X1, X2, diag=diag)
        return K if isinstance(K, Tensor) else K.to_dense()
