"""Any GPyTorch kernel in the batched core: `kernel=gpytorch.kernels.PeriodicKernel`, or a class of the user's own.

The class is built with `batch_shape=[B]`, and its raw parameters are learned with the rest under the names
`kernel.<name>`; what constrains them is the kernel's own affair. Our outputscale multiplies it."""

import inspect
import sys
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

import gpytorch
import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from dlmexp.errors import UserError
from dlmexp.gp.kernel import Hyper, Kernel, Parameter

PROBE = 7  # cells of a trial batch; no parameter has this size by itself


def gpytorch_kernel(path: str, typed: bool) -> "GPyTorchKernel":
    """The kernel class with that dotted path, ready for the core; or one sentence about what is wrong with it. Only
    where the user has `typed` the path is its module imported; otherwise it must have been, as GPyTorch's own and those
    of plugins are."""
    module_name, _, class_name = path.rpartition(".")
    if typed:
        try:
            import_module(module_name)
        except (ImportError, TypeError, ValueError) as error:  # the latter two: of names such as `..K`
            raise UserError(f"kernel={path}: there is no module '{module_name}' here ({error})") from error
    module = sys.modules.get(module_name)
    if module is None:
        raise UserError(
            f"kernel={path}: code is imported for a model only if you name it; where that is a module you trust, say "
            f"`dlmexp --plugins {module_name} COMMAND`, or import {module_name} in Python"
        )
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, gpytorch.kernels.Kernel)):
        raise UserError(f"kernel={path}: {module_name} has no such class that derives from gpytorch.kernels.Kernel")
    return _made(path, cls)


@cache
def _made(path: str, cls: type[gpytorch.kernels.Kernel]) -> "GPyTorchKernel":
    return GPyTorchKernel(path, cls)


class GPyTorchKernel(Kernel):
    """`s k(x, x')` with a GPyTorch kernel k. GPyTorch looks at values on the way, so no CUDA graph can capture it."""

    capturable = False

    def __init__(self, name: str, cls: type[gpytorch.kernels.Kernel]):
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
                raise UserError(f"kernel={name}: {parameter} does not begin with the batch_shape that it is given")
        self._isotropic = {parameter: value.shape[1:] for parameter, value in probe.named_parameters()}

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
        return functional_call(module, {name: hyper[name] for name, _ in module.named_parameters()}, (X1, X2, diag))

    @lru_cache(maxsize=16)  # noqa: B019  (kernels are kept for good by `_made`)
    def _module(self, B: int, ard: int | None, dtype: torch.dtype, device: torch.device) -> "_Evaluated":
        return self._built(B, ard).to(device=device, dtype=dtype)

    def options(self, ard: int | None) -> dict[str, Any]:
        """What the class is built with beside its batch shape; `ard` is the number of features with ARD."""
        return {"ard_num_dims": ard} if ard is not None and (self._any or "ard_num_dims" in self._takes) else {}

    def _built(self, B: int, ard: int | None) -> "_Evaluated":
        return _Evaluated(self.cls(batch_shape=torch.Size([B]), **self.options(ard)))


class _Evaluated(torch.nn.Module):
    """The kernel as a module that returns a dense matrix (a lazy one would be evaluated after `functional_call`)."""

    def __init__(self, kernel: gpytorch.kernels.Kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, X1: Tensor, X2: Tensor, diag: bool) -> Tensor:
        K = self.kernel(X1, X2, diag=diag)
        return K if isinstance(K, Tensor) else K.to_dense()
