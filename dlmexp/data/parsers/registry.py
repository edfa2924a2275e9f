"""The loaders: ways to get arrays, registered by the decorators `parser` and `generator`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dlmexp.data.spec import DatasetSpec, read_spec
from dlmexp.errors import UserError, nearest
from dlmexp.registry import Registry


@dataclass(frozen=True)
class Parsed:
    """Arrays as they come out of the raw files, before any check; `facts` are strings and numbers worth showing."""

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]  # one for each row, which is checked later
    facts: Mapping[str, Any] = field(default_factory=dict)


Read = Callable[[DatasetSpec, Mapping[str, Path]], Parsed]
"""(spec, paths by the name of the file spec) -> arrays."""


@dataclass(frozen=True)
class Loader:
    """A way to get arrays. `version` is raised when the arrays it gives change; `drawn` needs no files."""

    read: Read
    version: int
    drawn: bool


LOADERS: Registry[Loader] = Registry("loader", "dlmexp.data.parsers")


def parser(name: str, version: int = 1) -> Callable[[Read], Read]:
    """Registers a function that reads raw files."""

    def register(read: Read) -> Read:
        LOADERS.add(name, Loader(read, version, drawn=False))
        return read

    return register


def generator(name: str, version: int = 1) -> Callable[[Callable[[DatasetSpec], Parsed]], Callable]:
    """Registers a function that draws a dataset from its options; such data is known by its definition."""

    def register(draw: Callable[[DatasetSpec], Parsed]) -> Callable:
        LOADERS.add(name, Loader(lambda spec, _: draw(spec), version, drawn=True))
        return draw

    return register


def loader_of(spec: DatasetSpec) -> Loader:
    """The loader a spec names."""
    if spec.loader not in LOADERS:
        known = nearest(spec.loader, LOADERS.names())
        raise UserError(f"dataset '{spec.name}': unknown loader '{spec.loader}': {known}")
    return LOADERS[spec.loader]


def drawn_from_definition(dataset: str) -> bool:
    """Whether a dataset of `conf/dataset` is drawn, not read from files."""
    return loader_of(read_spec(dataset)).drawn
