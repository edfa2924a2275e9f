"""The registry of loaders, filled by the decorators `parser` (reads files) and `generator` (draws data)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from dlmexp.data.spec import DatasetSpec
from dlmexp.data.splits import Arrangement
from dlmexp.errors import UserError
from dlmexp.registry import Registry

T = TypeVar("T", bound=Callable[..., Any])


@dataclass(frozen=True)
class Parsed:
    """Arrays as parsed from the raw files, before any check; `facts` is extra information to show, as JSON values."""

    X: Float[np.ndarray, "rows D"]
    y: Float[np.ndarray, " targets"]  # one for each row, which is checked later
    facts: Mapping[str, Any] = field(default_factory=dict)
    arrangement: Arrangement | None = None  # of the rows, where a user wants one


@dataclass(frozen=True)
class Loader:
    """A function that returns the arrays of a dataset. `drawn`: it needs no files; `version` is part of the checksum of
    what it draws."""

    read: Callable[[DatasetSpec, Mapping[str, Path]], Parsed]
    drawn: bool = False
    version: int = 1


LOADERS: Registry[Loader] = Registry("loader", "dlmexp.data.parsers")


def parser(name: str) -> Callable[[T], T]:
    """Register a function that parses raw files, as a decorator: (spec, paths by the `name` in the spec) -> `Parsed`.

    Args:
        name: The `loader` in the YAML file of a dataset.

    Example:
        ```python
        @parser("waves")
        def waves(spec, files):
            table = np.loadtxt(files["waves/waves.txt"])
            return Parsed(table[:, :-1], table[:, -1])
        ```
    """

    def register(read: T) -> T:
        LOADERS.add(name, Loader(read))
        return read

    return register


def generator(name: str, version: int = 1) -> Callable[[T], T]:
    """Registers a function that draws a dataset from the `options` of its spec. Increase `version` when it draws other
    values than before."""

    def register(draw: T) -> T:
        LOADERS.add(name, Loader(lambda spec, _: draw(spec), True, version))
        return draw

    return register


def loader_of(spec: DatasetSpec) -> Loader:
    """The loader with the name in `spec.loader`."""
    try:
        return LOADERS[spec.loader]
    except UserError as error:
        raise UserError(f"dataset '{spec.name}': {error}") from None
