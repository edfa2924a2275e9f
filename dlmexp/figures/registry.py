"""All figures by id. To add one: a `Figure` in `declared.py`, or `FIGURES.add(id, figure)` in a plugin."""

from collections.abc import Iterable

from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import METRICS, Figure
from dlmexp.registry import Registry

PREDICTIONS = "predictions"  # the figure of one trained model, which is not made of panels of the table


class Figures(Registry[Figure]):
    """Figures by id, each checked when it is added."""

    def add(self, name: str, thing: Figure) -> Figure:
        """UserError for a figure without panels or lines, or with a panel of an unknown kind or metric."""
        if not thing.panels or thing.columns < 1 or not all(panel.lines for panel in thing.panels):
            raise UserError(f"figure '{name}': give it a panel, a column, and lines in each panel: one has no lines")
        for panel in thing.panels:
            _check(name, "kind of panel", panel.kind, METRICS)
            _check(name, f"metric of a panel '{panel.kind}'", panel.metric, METRICS[panel.kind])
        return super().add(name, thing)


FIGURES = Figures("figure", "dlmexp.figures.declared")


def _check(figure: str, what: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise UserError(f"figure '{figure}': there is no {what} '{word}': {nearest(word, sorted(known))}")


def check_methods(figure: Figure, known: Iterable[str]) -> None:
    """UserError for a figure with a method that neither `conf/` nor the results have."""
    valid = {*known}
    for line in (line for panel in figure.panels for line in panel.lines if not line.optional):
        _check(figure.id, "method", line.method, valid)


def find(ids: list[str]) -> list[Figure]:
    """The figures with these ids, each once; all of them where none is named."""
    for name in ids:
        if name not in FIGURES:
            known = nearest(name, [*FIGURES.names(), PREDICTIONS])
            raise UserError(f"there is no figure '{name}': {known} (that of data of your own is own-NAME)")
    return [FIGURES[name] for name in dict.fromkeys(ids or FIGURES.names())]
