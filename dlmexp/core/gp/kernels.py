"""Kernels over batches of cells (docs/SPEC.md, section 1).

There are the stationary kernels of this module, which compute one exponential per entry, and
`GPyTorchKernel`, which wraps any kernel of GPyTorch.

A stationary kernel is a function of `E = -|x - z|^2 / (2 l^2)`, and E is a single matrix product:

    E = left right^T    with left  = [z / l^2, -1/(2 l^2), -|z|^2 / (2 l^2)]
                             right = [x, |x|^2, 1]

With ARD, -1/(2 l^2) and |x|^2 are one column per feature. So all parameters enter through `left`,
which has M rows, and the single product `dE right` gives the gradient in `left`. The only array
[B, M, N] that is kept for the backward pass is K; a Matern kernel also keeps dK/dE.
"""

import inspect
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
from dlmexp.core.gp.fused import uses_triton
from dlmexp.core.gp.special import once_differentiable

Hyper = Mapping[str, Tensor]
"""Constrained hyperparameters of B cells by name: Z [B, M, D], mean [B], and the parameters that
kernel and likelihood declare."""


@dataclass(frozen=True)
class Parameter:
    """A learned hyperparameter.

    Attributes:
        initial: Its initial value: a number, or a tensor of its shape.
        positive: Whether it is `floor` plus the softplus of an unconstrained trained value.
        shape: Its shape for one cell.
        floor: The lower bound of a positive parameter.
    """

    initial: float | Tensor
    positive: bool = False
    shape: tuple[int, ...] = ()
    floor: float = 0.0

    def start(self, like: Tensor, B: int, initial: float | None = None) -> Tensor:
        """Return the initial value for B cells [B, *shape], with dtype and device of `like`.

        The argument `initial`, unless it is None, replaces the attribute of this name.
        """
        value = self.initial if initial is None else initial
        if isinstance(value, Tensor):
            return value.to(like).expand(B, *self.shape).clone()
        return like.new_full((B, *self.shape), value)


class Kernel(ABC):
    """A kernel k(x, x') over batches of cells.

    A new kernel is a class with these three methods, and a line that registers it:
    `KERNELS.add("rbf", RBF("rbf"))`.
    """

    stationary: ClassVar[bool] = False
    """Whether k(x, x) is the same at every input."""
    capturable: ClassVar[bool] = True
    """Whether its operations do not depend on the values of tensors, as a CUDA graph needs."""

    def __init__(self, name: str):
        self.name = name

    @abstractmethod
    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Return the hyperparameters on D features by name; `ard`: a lengthscale per feature."""

    @abstractmethod
    def __call__(
        self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper
    ) -> Float[Tensor, "B M N"]:
        """Return the kernel matrix [B, M, N]."""

    @abstractmethod
    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        """Return k(x, x) of every row [B, N]."""

    def trace(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B"]:
        """Return the sum of k(x, x) over the rows [B]."""
        if self.stationary:
            return X.shape[-2] * self.diagonal(X[..., :1, :], hyper).squeeze(-1)
        return self.diagonal(X, hyper).sum(-1)


KERNELS: Registry[Kernel] = Registry("kernel", "dlmexp.core.gp.kernels")


class Stationary(Kernel):
    """The outputscale times a function of `E = -|x - x'|^2 / (2 l^2)`.

    Its parameters are lengthscale [B, 1] or, with ARD, [B, D], and outputscale [B].
    """

    stationary: ClassVar[bool] = True

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Return lengthscale and outputscale."""
        return {
            "lengthscale": Parameter(1.0, positive=True, shape=(D if ard else 1,)),
            "outputscale": Parameter(1.0, positive=True),
        }

    def diagonal(self, X: Float[Tensor, "B N D"], hyper: Hyper) -> Float[Tensor, "B N"]:
        """Return the outputscale of every row."""
        return hyper["outputscale"][..., None].expand(*X.shape[:-1])


class RBF(Stationary):
    """`s exp(-|x - x'|^2 / 2 l^2)`."""

    def __call__(
        self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper
    ) -> Float[Tensor, "B M N"]:
        """Return the kernel matrix [B, M, N]."""
        if _takes_triton(X1, X2):
            return _triton_matrix(X1, X2, hyper, matern=0)
        left, right = _factors(X1, X2, hyper["lengthscale"])
        # s exp(E) = exp(E + log s). log s is added to the last column of left, which is multiplied
        # by the column of ones in right: so the gradient in left gives that in s, too.
        log_s = hyper["outputscale"].log()[..., None, None]
        log_s_in_last_column = torch.nn.functional.pad(log_s, (left.shape[-1] - 1, 0))
        # In float32 the rounding error of E can be large where an input lies many lengthscales
        # away from the origin. As E <= 0 without rounding, E + log s is clamped to log s.
        largest = log_s.detach() if left.dtype == torch.float32 else None
        return _Exponential.apply(left + log_s_in_last_column, right, largest)  # pyright: ignore[reportReturnType]


class Matern(Stationary):
    """The Matern kernels of `u = sqrt(order) |x - x'| / l`; their smoothness nu is order / 2."""

    order: ClassVar[int]

    def __call__(
        self, X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], hyper: Hyper
    ) -> Float[Tensor, "B M N"]:
        """Return the kernel matrix [B, M, N]."""
        if _takes_triton(X1, X2):
            return _triton_matrix(X1, X2, hyper, matern=self.order)
        left, right = _factors(X1, X2, hyper["lengthscale"])
        function = _Matern32 if self.order == 3 else _Matern52
        return function.apply(left, right, hyper["outputscale"])  # pyright: ignore[reportReturnType]


class Matern32(Matern):
    """`s (1 + u) exp(-u)` with `u = sqrt(3) |x - x'| / l`."""

    order = 3


class Matern52(Matern):
    """`s (1 + u + u^2 / 3) exp(-u)` with `u = sqrt(5) |x - x'| / l`."""

    order = 5


FUSED_ORDERS = {RBF: 0, Matern32: 3, Matern52: 5}
"""The argument `matern` of `gp.fused` for each class: the order of a Matern kernel, 0 for RBF."""


def fused_parameters(
    kernel: Kernel, hyper: Hyper, X: Tensor
) -> tuple[Tensor, Tensor, Tensor, int] | None:
    """Return Z, lengthscale, outputscale and order: the first arguments of `fused.projected`.

    Return None where `fused.projected` can not be used for the kernel matrix between Z and X:
    without Triton, for kernels that are not in `FUSED_ORDERS`, and if X needs a gradient.
    """
    order = FUSED_ORDERS.get(type(kernel))
    if order is None or not uses_triton(hyper["Z"]) or X.requires_grad:
        return None
    return hyper["Z"], hyper["lengthscale"], hyper["outputscale"], order


rbf = KERNELS.add("rbf", RBF("rbf"))
matern32 = KERNELS.add("matern32", Matern32("matern32"))
matern52 = KERNELS.add("matern52", Matern52("matern52"))


def _factors(
    X1: Float[Tensor, "B M D"], X2: Float[Tensor, "B N D"], lengthscale: Float[Tensor, "B P"]
) -> tuple[Float[Tensor, "B M F"], Float[Tensor, "B N F"]]:
    """Return left [B, M, F] and right [B, N, F] with `left right^T = -|x1 - x2|^2 / (2 l^2)`."""
    # 1 / l^2
    precision = lengthscale.square().reciprocal().unsqueeze(-2)
    # left = [x1 / l^2, -1/(2 l^2), -|x1|^2 / (2 l^2)]
    scaled = X1 * precision
    norm = (scaled * X1).sum(-1, keepdim=True)
    half_precision = (-0.5 * precision).expand(*X1.shape[:-1], -1)
    left = torch.cat([scaled, half_precision, -0.5 * norm], -1)
    # right = [x2, |x2|^2, 1]
    squared = X2.square()
    if lengthscale.shape[-1] == 1:
        squared = squared.sum(-1, keepdim=True)
    right = torch.cat([X2, squared, torch.ones_like(X2[..., :1])], -1)
    return left, right


def _takes_triton(X1: Tensor, X2: Tensor) -> bool:
    """Return whether Triton computes the matrix of X1 and X2.

    The Triton kernel computes the gradient in X2 only if X2 is X1.
    """
    return uses_triton(X1) and (X1 is X2 or not X2.requires_grad)


def _triton_matrix(Z: Tensor, X: Tensor, hyper: Hyper, matern: int) -> Float[Tensor, "B M N"]:
    """Return the kernel matrix [B, M, N], computed by Triton; `matern` is in `FUSED_ORDERS`."""
    from dlmexp.core.gp.fused.stationary import StationaryMatrix

    # None tells `StationaryMatrix` that both sides are Z.
    X_or_none = None if Z is X else X
    return StationaryMatrix.apply(Z, X_or_none, hyper["lengthscale"], hyper["outputscale"], matern)  # pyright: ignore[reportReturnType]


class _Exponential(torch.autograd.Function):
    """(left, right, largest) -> exp(min(left right^T, largest)).

    The result is the only array of its size that is kept for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, largest: Tensor | None) -> Tensor:
        exponent = torch.matmul(left, right.mT)
        if largest is not None:
            torch.minimum(exponent, largest, out=exponent)
        K = exponent.exp_()
        ctx.save_for_backward(left, right, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        left, right, K = ctx.saved_tensors
        # dE = dK * K
        d_E = grads[0] * K
        d_left = d_E @ right if ctx.needs_input_grad[0] else None
        d_right = d_E.mT @ left if ctx.needs_input_grad[1] else None
        return d_left, d_right, None


class _Matern52(torch.autograd.Function):
    """The Matern-5/2 kernel of E = left right^T.

    Its slope dK/dE = 5/3 s (1 + u) exp(-u) is finite at distance 0, where differentiating through
    the square root would give NaN.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, outputscale: Tensor) -> Tensor:
        u, decay = _decay(left, right, outputscale, order=5)
        # dK/dE = 5/3 s exp(-u) (1 + u)
        slope = decay * (5 / 3)
        slope.addcmul_(u, slope)
        # K = s exp(-u) (1 + u + u^2 / 3)
        K = decay.mul_(u.square().mul_(1 / 3).add_(u).add_(1))
        ctx.save_for_backward(left, right, outputscale, K, slope)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, right, outputscale, K, slope = ctx.saved_tensors
        return _matern_gradients(ctx.needs_input_grad, grads[0], left, right, outputscale, K, slope)


class _Matern32(torch.autograd.Function):
    """The Matern-3/2 kernel of E = left right^T.

    Its slope dK/dE = 3 s exp(-u) is finite at distance 0, like that of `_Matern52`.
    """

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, outputscale: Tensor) -> Tensor:
        u, decay = _decay(left, right, outputscale, order=3)
        # dK/dE = 3 s exp(-u)
        slope = decay * 3
        # K = s exp(-u) (1 + u)
        K = decay.mul_(u.add_(1))
        ctx.save_for_backward(left, right, outputscale, K, slope)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, right, outputscale, K, slope = ctx.saved_tensors
        return _matern_gradients(ctx.needs_input_grad, grads[0], left, right, outputscale, K, slope)


def _decay(
    left: Float[Tensor, "B M F"],
    right: Float[Tensor, "B N F"],
    outputscale: Float[Tensor, "B"],
    order: int,
) -> tuple[Float[Tensor, "B M N"], Float[Tensor, "B M N"]]:
    """Return u = sqrt(order) |x - z| / l, and s exp(-u)."""
    # u = sqrt(-2 order E). Rounding can leave E a little above 0 where the distance is 0.
    u = torch.matmul(left, right.mT).clamp_(max=0).mul_(-2 * order).sqrt_()
    return u, torch.exp(-u).mul_(outputscale[..., None, None])


def _matern_gradients(
    needed: Sequence[bool],
    d_K: Float[Tensor, "B M N"],
    left: Float[Tensor, "B M F"],
    right: Float[Tensor, "B N F"],
    outputscale: Float[Tensor, "B"],
    K: Float[Tensor, "B M N"],
    slope: Float[Tensor, "B M N"],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients in left, right and outputscale from the gradient d_K in K.

    `needed` says which of the three gradients are needed; those that are not are None. `slope` is
    dK/dE.
    """
    d_outputscale = None
    if needed[2]:
        d_outputscale = (d_K * K).sum((-2, -1)) / outputscale
    d_E = d_K * slope
    d_left = d_E @ right if needed[0] else None
    d_right = d_E.mT @ left if needed[1] else None
    return d_left, d_right, d_outputscale


def kernel_named(name: str, may_import: bool = False) -> Kernel:
    """Return the kernel registered under a name, or the GPyTorch kernel of a dotted path.

    `NAME+linear` adds a linear term, `NAME@4_17` has two categories (`mixed_kernels`).

    Args:
        name: The name, or the path `package.Class`.
        may_import: Whether the module of a path may be imported, which runs its code: True only for
            a name that the user has typed. A name that comes from a file must not run code, so its
            module must have been imported before.

    Raises:
        UserError: There is no such kernel, or its module is not imported and may not be.
    """
    from dlmexp.core.gp import mixed_kernels

    if mixed_kernels.is_mixed(name):
        base, linear, sizes = mixed_kernels.kernel_parts(name)
        return mixed_kernels.mixed_kernel(kernel_named(base, may_import), linear, sizes)
    if "." not in name:
        return KERNELS[name]
    with warnings.catch_warnings():
        # GPyTorch takes seconds to import, so it is imported only where it is needed. Its own code
        # causes DeprecationWarnings then.
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
    module_name, _, class_name = name.rpartition(".")
    if may_import:
        _import_module(name, module_name)
    module = sys.modules.get(module_name)
    if module is None:
        raise UserError(
            f"kernel={name}: the module of a kernel is imported only if you name it; "
            f"if you trust {module_name}, say `dlmexp --plugins {module_name} COMMAND`, "
            f"or import {module_name} in Python"
        )
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, gpytorch.kernels.Kernel)):
        raise UserError(
            f"kernel={name}: {module_name} has no such class that derives "
            "from gpytorch.kernels.Kernel"
        )
    return _gpytorch_kernel(name, cls)


def _import_module(kernel: str, module_name: str) -> None:
    """Import the module of a kernel; `kernel` is the name that the user has typed.

    Raises:
        UserError: There is no such module.
    """
    try:
        import_module(module_name)
    # TypeError and ValueError come from names such as `..K`.
    except (ImportError, TypeError, ValueError) as error:
        raise UserError(
            f"kernel={kernel}: there is no module '{module_name}' here ({error})"
        ) from error


PROBE = 7
"""Number of cells of the trial batch of a GPyTorch kernel: a number that hardly any parameter has
as its first dimension by chance, so that a parameter with it must have taken the batch shape."""


class GPyTorchKernel(Kernel):
    """`s k(x, x')` with a GPyTorch kernel k, such as `gpytorch.kernels.PeriodicKernel`.

    The class may be GPyTorch's or a user's. An instance for B cells is made with `batch_shape=[B]`.
    Its raw parameters are learned under the names `kernel.<name>`; the class constrains them
    itself. Operations of GPyTorch depend on values, so no CUDA graph can capture them.
    """

    capturable = False

    def __init__(self, name: str, cls: type[Any]):
        """Check the class by a trial instance, and keep the shapes of its parameters.

        Raises:
            UserError: The class can't be called with a batch shape alone, or ignores it.
        """
        super().__init__(name)
        self.cls = cls
        options = inspect.signature(cls).parameters
        takes_keywords = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in options.values())
        self._takes_ard = takes_keywords or "ard_num_dims" in options
        try:
            probe = self._build(PROBE, ard_features=None)
        except Exception as error:  # a user's class can raise anything
            raise UserError(
                f"kernel={name} can't be made with a batch_shape alone ({error}): "
                "derive a class that can"
            ) from error
        self._shapes_without_ard: dict[str, torch.Size] = {}
        for parameter, value in probe.named_parameters():
            if value.shape[:1] != (PROBE,):
                raise UserError(
                    f"kernel={name}: the shape of {parameter} does not begin with the batch_shape"
                )
            self._shapes_without_ard[parameter] = value.shape[1:]

    def parameters(self, D: int, ard: bool) -> dict[str, Parameter]:
        """Return the raw parameters of the class, and the outputscale."""
        parameters = {}
        module = self._build(1, ard_features=D if ard else None)
        for name, value in module.named_parameters():
            initial = value.detach()[0].double()
            parameters[name] = Parameter(initial, shape=tuple(value.shape[1:]))
        parameters["outputscale"] = Parameter(1.0, positive=True)
        return parameters

    def __call__(self, X1: Tensor, X2: Tensor, hyper: Hyper) -> Float[Tensor, "B M N"]:
        """Return the kernel matrix [B, M, N]."""
        return hyper["outputscale"][..., None, None] * self._evaluate(X1, X2, hyper, diag=False)

    def diagonal(self, X: Tensor, hyper: Hyper) -> Float[Tensor, "B N"]:
        """Return k(x, x) of every row [B, N]."""
        return hyper["outputscale"][..., None] * self._evaluate(X, X, hyper, diag=True)

    def _evaluate(self, X1: Tensor, X2: Tensor, hyper: Hyper, diag: bool) -> Tensor:
        """Return the matrix of k [B, M, N], or its diagonal [B, N]."""
        ard_features = X1.shape[-1] if self._has_ard(hyper) else None
        module = self._module(len(X1), ard_features, X1.dtype, X1.device)
        values = {name: hyper[name] for name, _ in module.named_parameters()}
        return functional_call(module, values, (X1, X2, diag))

    def _has_ard(self, hyper: Hyper) -> bool:
        """Return whether a parameter has another shape than without ARD."""
        for name, shape in self._shapes_without_ard.items():
            if hyper[name].shape[1:] != shape:
                return True
        return False

    @lru_cache(maxsize=16)  # noqa: B019 - kernels live as long as the process
    def _module(
        self, B: int, ard_features: int | None, dtype: torch.dtype, device: torch.device
    ) -> "_DenseKernel":
        """Return the kernel as a module for B cells; `ard_features` as in `options`."""
        return self._build(B, ard_features).to(device=device, dtype=dtype)

    def options(self, ard_features: int | None) -> dict[str, Any]:
        """Return the keyword arguments of the class besides `batch_shape`.

        `ard_features` is the number of features, if each has its own lengthscale; None: they share
        one.
        """
        if ard_features is None or not self._takes_ard:
            return {}
        return {"ard_num_dims": ard_features}

    def _build(self, B: int, ard_features: int | None) -> "_DenseKernel":
        """Return a new kernel for B cells; `ard_features` as in `options`."""
        kernel = self.cls(batch_shape=torch.Size([B]), **self.options(ard_features))
        return _DenseKernel(kernel)


# The same object for the same name and class, so that the trial instance is made only once, and the
# modules that `_module` caches are reused.
_gpytorch_kernel = cache(GPyTorchKernel)


class _DenseKernel(torch.nn.Module):
    """A GPyTorch kernel as a module that returns a dense matrix.

    GPyTorch returns a lazy matrix. It must be evaluated here, within `functional_call`: afterwards
    the module has its former parameters again.
    """

    def __init__(self, kernel: Any):
        super().__init__()
        self.kernel = kernel

    def forward(self, X1: Tensor, X2: Tensor, diag: bool) -> Tensor:
        K = self.kernel(X1, X2, diag=diag)
        return K if isinstance(K, Tensor) else K.to_dense()
