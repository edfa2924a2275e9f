"""Objects by name: those of this package, and those that plugins add.

Importing a module registers its objects. Each registry has a list of the modules of this package
that register objects in it, and imports them when it is first used. Modules of other packages are
found by entry points of the group `dlmexp.<kind>s` (for instance `dlmexp.objectives`), or the user
names them with `plugins=[module]`.
"""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import entry_points
from threading import RLock
from typing import Generic, TypeVar
from weakref import WeakSet

from dlmexp.common.errors import UserError, nearest

T = TypeVar("T")
S = TypeVar("S")

PACKAGE = __name__.partition(".")[0]


class Registry(Generic[T]):
    """Objects of one kind by name.

    Plugins add to these:

    | registry | kind | objects |
    |---|---|---|
    | `dlmexp.data.dataset.LOADERS` | loaders | functions that return a `Dataset` |
    | `dlmexp.core.gp.kernels.KERNELS` | kernels | instances |
    | `dlmexp.core.likelihoods.LIKELIHOODS` | likelihoods | classes |
    | `dlmexp.core.objectives.OBJECTIVES` | objectives | instances |
    | `dlmexp.core.estimators.ESTIMATORS` | estimators | classes |
    | `dlmexp.presentation.figures.panels.FIGURES` | figures | instances |
    | `dlmexp.presentation.figures.kinds.kind.PANEL_KINDS` | panels | instances |
    | `dlmexp.presentation.claims.claim.CLAIMS` | claims | instances |

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
        self._items: dict[str, T] = {}
        self._module_of: dict[str, str] = {}  # the module that registered each item, by its name
        _REGISTRIES.add(self)
        self._is_complete = False
        self._loading = RLock()  # datasets are read in several threads

    def add(self, name: str, item: T) -> T:
        """Register an object under the name that users type, and return it.

        A class gets the name as its attribute `name`.

        Raises:
            UserError: another object has this name.
        """
        if self._items.get(name, item) is not item:
            raise UserError(f"there are two {self.kind}s named '{name}': rename one of them")
        if isinstance(item, type):
            item.name = name  # pyright: ignore[reportAttributeAccessIssue]
        self._items[name] = item
        self._module_of[name] = _registering_module()
        return item

    def register(self, name: str) -> Callable[[S], S]:
        """Return `add` as a decorator: `@ESTIMATORS.register("mine")` above a class."""
        return lambda item: self.add(name, item)  # pyright: ignore

    def names(self) -> list[str]:
        """Return all names; those of this package come first."""
        self._load()
        return list(self._items)

    def module_of(self, name: str) -> str | None:
        """Return the module that registered the object `name`; None if there is no such object."""
        self._load()
        return self._module_of.get(name)

    def modules(self) -> set[str]:
        """Return the modules that have registered something so far."""
        return set(self._module_of.values())

    def __getitem__(self, name: str) -> T:
        """Return the object of that name.

        Raises:
            UserError: no object has this name; the message offers the closest names.
        """
        self._load()
        if name not in self._items:
            raise UserError(f"there is no {self.kind} '{name}': {nearest(name, self.names())}")
        return self._items[name]

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _load(self) -> None:
        with self._loading:
            if self._is_complete:
                return
            # Set before the imports: a module may use this registry while it is imported, which
            # calls this method again.
            self._is_complete = True
            for module in self._modules:
                import_module(module)
            for entry_point in entry_points(group=f"dlmexp.{self.kind}s"):
                entry_point.load()


# All registries, by weak references: a registry that a test creates disappears with the test.
_REGISTRIES: WeakSet[Registry] = WeakSet()


def registered_by(module: str) -> dict[str, list[str]]:
    """Return the names that a module, or any module of a package, has registered, by kind."""
    names: dict[str, list[str]] = {}
    for registry in sorted(_REGISTRIES, key=lambda registry: registry.kind):
        for name in registry.names():
            origin = registry.module_of(name) or ""
            is_inside = f"{origin}.".startswith(f"{module}.")
            if is_inside:
                names.setdefault(registry.kind, []).append(name)
    return names


def plugin_modules() -> set[str]:
    """Return the other packages that have registered something."""
    packages: set[str] = set()
    for registry in _REGISTRIES:
        for module in registry.modules():
            package, _, _ = module.partition(".")
            packages.add(package)
    return packages - {PACKAGE, ""}


def _registering_module() -> str:
    """Return the module whose code registers an object by `add`, or '' if it is not known.

    Functions of this package, such as the decorator of claims, call `add` for other modules. So the
    stack is searched, from the caller of `add` outwards, for code of another package, or for the
    top level of a module of this package, which is being imported.
    """
    frame = sys._getframe(2)  # the caller of `add`
    while frame.f_back is not None:
        module = frame.f_globals.get("__name__", "")
        package, _, _ = module.partition(".")
        is_top_level = frame.f_code.co_name == "<module>"
        if is_top_level or package != PACKAGE:
            return module
        frame = frame.f_back
    return ""
