"""All figures by id. To add one: a `Figure` in `paper.py` or `beyond.py`, or `FIGURES.add(id, figure)` in a plugin."""

from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import Figure, check
from dlmexp.registry import Registry

PREDICTIONS = "predictions"  # the figure of one trained model, which is not made of panels of the table


class Figures(Registry[Figure]):
    """Figures by id, each checked when it is added."""

    def add(self, name: str, thing: Figure) -> Figure:
        check(thing)
        return super().add(name, thing)


FIGURES = Figures("figure", "dlmexp.figures.paper", "dlmexp.figures.beyond")


def find(ids: list[str]) -> list[Figure]:
    """The figures with these ids, each once; all of them where none is named."""
    for name in ids:
        if name not in FIGURES:
            known = nearest(name, [*FIGURES.names(), PREDICTIONS])
            raise UserError(f"there is no figure '{name}': {known} (that of data of your own is own-NAME)")
    return [FIGURES[name] for name in dict.fromkeys(ids or FIGURES.names())]
