"""What the columns of a table are called and how they become features: what another table needs to be predicted on."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Label = int | str


class Column(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of numbers, of dates (as days since 1970), or a category, which with K `levels`, in order, becomes K - 1
    binary features; `of` is what the levels were before they were text."""

    name: str
    kind: Literal["number", "date", "category"] = "number"
    levels: tuple[str, ...] = ()
    of: Literal["text", "numbers", "dates"] = "text"

    @property
    def features(self) -> tuple[str, ...]:
        """The names of its features; that of a level is `column=level`, and the first level is all zeros."""
        return tuple(f"{self.name}={level}" for level in self.levels[1:]) if self.kind == "category" else (self.name,)


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """The target and the columns of features in the order of training; of a binary target, its labels for 0 and 1; and
    how its files are read."""

    target: str
    columns: tuple[Column, ...]
    labels: tuple[Label, Label] | None = None
    fill: bool = False  # a missing value is taken as the mean of the training rows
    sep: str | None = None  # between the columns of a text file; None: by the ending of its name
    na: tuple[str, ...] = ()  # further words for a missing value

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features, in the order of the arrays."""
        return tuple(name for column in self.columns for name in column.features)


def plain_schema(features: Sequence[str] | int, task: str) -> Schema:
    """Columns of numbers under the given names, or so many called x1, x2, ...; the target is y."""
    names = [f"x{k + 1}" for k in range(features)] if isinstance(features, int) else features
    return Schema("y", tuple(Column(name) for name in names), (0, 1) if task == "binary" else None)
