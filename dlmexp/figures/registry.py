"""All figures by id. To add one: a `Figure` in a file of `families`, or `FIGURES.add(id, figure)` in a plugin."""

from dlmexp.figures.panels import Figure
from dlmexp.registry import Registry

FIGURES: Registry[Figure] = Registry("figure", "dlmexp.figures.families")


def find(ids: list[str]) -> list[Figure]:
    """The figures with these ids, each once; all of them where none is named."""
    return [FIGURES[name] for name in dict.fromkeys(ids or FIGURES.names())]
