"""Things by name: ours, and those that other packages add.

A registry knows the modules of ours that register something in it, and imports them when it is
first asked. Another package adds to it through an entry point of the group `dlmexp.<kind>s` (for
instance `dlmexp.core.objectives`) that names a module, or the user names the module with
`plugins=[module]`; importing it is what registers."""

from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from threading import RLock
from typing import Generic, TypeVar

from dlmexp.common.errors import UserError, nearest

T = TypeVar("T")
S = TypeVar("S")


class Registry(Generic[T]):
    """Objects of one kind by name. Those that plugins add to:

    | registry | of | holds |
    |---|---|---|
    | `dlmexp.data.dataset.LOADERS` | loaders | functions that give X and y |
    | `dlmexp.core.gp.kernels.KERNELS` | kernels | objects |
    | `dlmexp.core.likelihoods.LIKELIHOODS` | likelihoods | classes |
    | `dlmexp.core.objectives.OBJECTIVES` | objectives | objects |
    | `dlmexp.core.estimators.ESTIMATORS` | estimators | classes |
    | `dlmexp.presentation.figures.panels.FIGURES` | figures | objects |
    | `dlmexp.presentation.claims.claim.CLAIMS` | claims | objects |

    Example:
        ```python
        from dlmexp.core.objectives import OBJECTIVES

        OBJECTIVES.names()
        OBJECTIVES["log_dlm"].has_beta
        ```
    """

    def __init__(self, kind: str, *modules: str):
        self.kind = kind
        self._modules = modules
        self._things: dict[str, T] = {}
        self._complete = False
        self._loading = RLock()  # datasets are read in several threads

    def add(self, name: str, thing: T) -> T:
        """Register `thing` under the name that users type and return it; a class gets the name as
        its attribute `name`. UserError if something else has this name."""
        if self._things.get(name, thing) is not thing:
            raise UserError(f"there are two {self.kind}s named '{name}': rename one of them")
        if isinstance(thing, type):
            thing.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self._things[name] = thing
        return thing

    def register(self, name: str) -> Callable[[S], S]:
        """`add` as a decorator: `@ESTIMATORS.register("mine")` above a class."""
        return lambda thing: self.add(name, thing)  # pyright: ignore

    def names(self) -> list[str]:
        """All names, ours first."""
        self._load()
        return list(self._things)

    def __getitem__(self, name: str) -> T:
        """The thing of that name; an unknown name is a sentence for the user."""
        self._load()
        if name not in self._things:
            raise UserError(f"there is no {self.kind} '{name}': {nearest(name, self.names())}")
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._things

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _load(self) -> None:
        with self._loading:
            if self._complete:
                return
            self._complete = True  # first: a module that is being imported may ask for names itself
            for module in self._modules:
                import_module(module)
            for point in entry_points(group=f"dlmexp.{self.kind}s"):
                point.load()
