"""torch's decorator for gradients that are not differentiated again, with a type that fits."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch.autograd import function

Backward = TypeVar("Backward", bound=Callable[..., Any])


def once_differentiable(backward: Backward) -> Backward:
    """torch's own says that it takes `ctx` by position alone, which `Function.backward` does not: no use of it as an
    override would pass a type checker. It wraps the function and leaves the signature as it is."""
    return function.once_differentiable(backward)  # pyright: ignore[reportReturnType]
