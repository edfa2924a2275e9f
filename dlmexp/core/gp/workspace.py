"""Memory that one training step after another works in.

On a CPU, asking the system for new pages can take a quarter of the time of a step.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Workspace:
    """Arrays by name that are reused as long as they fit."""

    def __init__(self) -> None:
        """Start without any memory."""
        self._arrays: dict[str, Tensor] = {}
        self._derived: dict[str, tuple[Tensor, Tensor]] = {}

    def array(self, name: str, like: Tensor, shape: Sequence[int]) -> Tensor:
        """Return an array of this shape with arbitrary contents, dtype and device as `like`.

        It is the array that was last returned under this name, if that fits.
        """
        array = self._arrays.get(name)
        if array is None or not _fits(array, like, shape):
            array = like.new_empty(shape)
            self._arrays[name] = array
        return array

    def derived(self, name: str, source: Tensor, derive: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `derive(source)`, computed once as long as `source` is the same tensor.

        The values of `source` must never change.
        """
        entry = self._derived.get(name)
        if entry is None or entry[0] is not source:
            entry = (source, derive(source))
            self._derived[name] = entry
        return entry[1]


def _fits(array: Tensor, like: Tensor, shape: Sequence[int]) -> bool:
    same_shape = array.shape == torch.Size(shape)
    return same_shape and array.dtype == like.dtype and array.device == like.device
