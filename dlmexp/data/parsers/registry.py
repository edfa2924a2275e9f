"""The table of loaders, filled by the decorators `parser` and `generator`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dlmexp.data.spec import DatasetSpec
from dlmexp.errors import UserError, nearest


@dataclass(frozen=True)
class Parsed:
    """Arrays as they come out of the raw files, before any check; `facts` are strings and numbers worth showing."""

    X: Float[np.ndarray, "N D"]
    y: Float[np.ndarray, " N"]
    facts: Mapping[str, Any] = field(default_factory=dict)


Read = Callable[[DatasetSpec, Mapping[str, Path]], Parsed]
"""(spec, paths by the name of the file spec) -> arrays."""


@dataclass(frozen=True)
class Loader:
    """A way to get arrays. `version` is raised when the arrays it gives change; `drawn` needs no files."""

    read: Read
    version: int
    drawn: bool


LOADERS: dict[str, Loader] = {}


def parser(name: str, version: int = 1) -> Callable[[Read], Read]:
    """Registers a function that reads raw files."""

    def register(read: Read) -> Read:
        LOADERS[name] = Loader(read, version, drawn=False)
        return read

    return register


def generator(name: str, version: int = 1) -> Callable[[Callable[[DatasetSpec], Parsed]], Callable]:
    """Registers a function that draws a dataset from its options; such data is known by its definition."""

    def register(draw: Callable[[DatasetSpec], Parsed]) -> Callable:
        LOADERS[name] = Loader(lambda spec, _: draw(spec), version, drawn=True)
        return draw

    return register


def loader_of(spec: DatasetSpec) -> Loader:
    """The loader a spec names."""
    import dlmexp.data.parsers  # noqa: F401  (fills the table)

    if spec.loader not in LOADERS:
        raise UserError(f"dataset '{spec.name}': unknown loader '{spec.loader}': {nearest(spec.loader, list(LOADERS))}")
    return LOADERS[spec.loader]
