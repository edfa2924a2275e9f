"""All figures by id. To add one: a file with a `FIGURES` tuple, and its name in `FAMILIES`."""

from functools import cache
from importlib import import_module

from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import Figure

FAMILIES = ("selection", "regression", "classification", "counts", "airline", "gradients", "default")


@cache
def figures() -> dict[str, Figure]:
    """Every figure, in the order in which the paper shows them."""
    families = (import_module(f"dlmexp.figures.families.{name}").FIGURES for name in FAMILIES)
    return {figure.id: figure for family in families for figure in family}


def find(ids: list[str]) -> list[Figure]:
    """The figures with these ids, or a sentence with the nearest ones."""
    known = figures()
    for name in ids:
        if name not in known:
            raise UserError(f"there is no figure '{name}': {nearest(name, list(known))}")
    return [known[name] for name in dict.fromkeys(ids)]
