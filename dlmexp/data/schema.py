"""What the columns of a table are called and how they become features: what another table needs to be predicted on."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

Label = int | float | str


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of numbers, or of text: with K `levels`, in order, it becomes K - 1 binary features."""

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features; that of a level is `column=level`, and the first level is all zeros."""
        return (self.name,) if self.levels is None else tuple(f"{self.name}={level}" for level in self.levels[1:])


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target and the columns of features in the order of training; of a binary target, its labels for 0 and 1."""

    target: str
    columns: tuple[Column, ...]
    labels: tuple[Label, Label] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features, in the order of the arrays."""
        return tuple(name for column in self.columns for name in column.features)


def plain_schema(features: Sequence[str] | int, task: str) -> Schema:
    """Columns of numbers under the given names, or so many called x1, x2, ...; the target is y."""
    names = [f"x{k + 1}" for k in range(features)] if isinstance(features, int) else features
    return Schema("y", tuple(Column(name) for name in names), (0, 1) if task == "binary" else None)


def labels_of(classes: Iterable[Any]) -> tuple[Label, Label]:
    """The two classes of a binary target as JSON values: text, or numbers, whole ones without a point."""
    first, second = (value.item() if isinstance(value, np.generic) else value for value in classes)
    return _label(first), _label(second)


def _label(value: Any) -> Label:
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    return value if isinstance(value, int) else str(value)
