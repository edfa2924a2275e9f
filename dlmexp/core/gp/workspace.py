"""Memory that successive training steps reuse.

On a CPU, getting new pages of memory from the system can take a quarter of the time of a step.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Workspace:
    """Arrays by name, which are reused as long as shape, type and device stay the same."""

    def __init__(self) -> None:
        """Start without any memory."""
        self._arrays: dict[str, Tensor] = {}
        self._derived: dict[str, tuple[Tensor, Tensor]] = {}

    def array(self, name: str, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Return an array of this shape, of dtype and device of `like`, with arbitrary contents.

        It is the array that was last returned under this name, if that has the same shape, dtype
        and device.
        """
        array = self._arrays.get(name)
        if array is None or not _fits(array, like, shape):
            array = like.new_empty(shape)
            self._arrays[name] = array
        return array

    def derived(self, name: str, source: Tensor, derive: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `derive(source)`, computed again only if `source` is another tensor object.

        The values of a source must not change, as the same object would give the old result.
        """
        last_source, derived = self._derived.get(name, (None, None))
        if derived is None or last_source is not source:
            derived = derive(source)
            self._derived[name] = (source, derived)
        return derived


def _fits(array: Tensor, like: Tensor, shape: Sequence[int]) -> bool:
    """Return whether an array has this shape, and dtype and device of `like`."""
    has_shape = array.shape == torch.Size(shape)
    return has_shape and array.dtype == like.dtype and array.device == like.device
