"""The registry of loaders, filled by the decorators `parser` (reads files) and `generator` (draws data)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dlmexp.data.arrangement import Arrangement
from dlmexp.data.spec import DatasetSpec, read_spec
from dlmexp.errors import UserError, nearest
from dlmexp.registry import Registry


@dataclass(frozen=True)
class Parsed:
    """Arrays as parsed from the raw files, before any check; `facts` is extra information to show, as JSON values."""

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]  # one for each row, which is checked later
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrangement: Arrangement | None = None  # of the rows, where a user wants one


Read = Callable[[DatasetSpec, Mapping[str, Path]], Parsed]
"""(spec, paths by the `name` of their FileSpec) -> arrays."""


@dataclass(frozen=True)
class Loader:
    """A function that returns the arrays of a dataset. Increase `version` when they change. `drawn`: needs no files.
    `cached`: parsed arrays are kept on disk."""

    read: Read
    version: int
    drawn: bool
    cached: bool = True


TEST = "test rows"
"""The name under which a user's own file of test rows is given to the loader of tables."""

LOADERS: Registry[Loader] = Registry("loader", "dlmexp.data.parsers")


def parser(name: str, version: int = 1, cached: bool = True) -> Callable[[Read], Read]:
    """Register a function that parses raw files, as a decorator.

    Args:
        name: The `loader` in the YAML file of a dataset.
        version: To be increased when the function gives other arrays than before.
        cached: Whether parsed arrays are kept on disk.

    Example:
        ```python
        @parser("waves")
        def waves(spec, files):
            table = np.loadtxt(files["waves/waves.txt"])
            return Parsed(table[:, :-1], table[:, -1])
        ```
    """

    def register(read: Read) -> Read:
        LOADERS.add(name, Loader(read, version, drawn=False, cached=cached))
        return read

    return register


def generator(name: str, version: int = 1) -> Callable[[Callable[[DatasetSpec], Parsed]], Callable]:
    """Registers a function that draws a dataset from the `options` of its spec."""

    def register(draw: Callable[[DatasetSpec], Parsed]) -> Callable:
        LOADERS.add(name, Loader(lambda spec, _: draw(spec), version, drawn=True))
        return draw

    return register


def loader_of(spec: DatasetSpec) -> Loader:
    """The loader with the name in `spec.loader`."""
    if spec.loader not in LOADERS:
        known = nearest(spec.loader, LOADERS.names())
        raise UserError(f"dataset '{spec.name}': unknown loader '{spec.loader}': {known}")
    return LOADERS[spec.loader]


def drawn_from_definition(dataset: str) -> bool:
    """Whether a dataset of `conf/dataset` is drawn instead of read from files."""
    return loader_of(read_spec(dataset)).drawn
