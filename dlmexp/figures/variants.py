"""Which drawings to make of a figure: with the paper's datasets or stand-ins, and for which parameterisation of q."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dlmexp import catalogue
from dlmexp.config import PARAMETERISATIONS
from dlmexp.data.parsers.registry import drawn_from_definition
from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import Figure, Panel
from dlmexp.records.results import Results
from dlmexp.records.terms import has_value, parse_terms


@dataclass(frozen=True)
class Drawing:
    """A variant of a figure to draw: panels with the datasets to use (maybe stand-ins), and the name of its files."""

    figure: Figure
    name: str
    panels: tuple[Panel, ...]
    parameterisation: str = "whitened"
    preset: str = ""  # whose results it shows, if not those of whole experiments

    @property
    def stand_ins(self) -> dict[str, str]:
        """The stand-ins in this drawing: stand-in -> dataset of the paper."""
        own = {panel.dataset for panel in self.figure.panels}
        used = dict.fromkeys(panel.dataset for panel in self.panels if panel.dataset not in own)
        return {name: of for name in used if (of := catalogue.stands_for(name))}


def parse_by(terms: Iterable[str]) -> dict[str, list[str]]:
    """`field=value[,value...]` terms as a dictionary; UserError for a field that cells do not have."""
    return parse_terms("--by", terms, ("method",))


def restrict(results: Results, wanted: dict[str, list[str]]) -> Results:
    """The results with only the records that have one of the wanted values in each field, and what was asked for under
    the wanted methods. `dataset` is ignored here: it selects panels."""
    if methods := wanted.get("method"):
        present = {one.method for one in results.asked}
        for name in methods:
            if name not in present:
                raise UserError(f"--by method={name}: it was not run; there are {', '.join(sorted(present))}")
        results = results.of_methods(methods)
    kept = list(results.records.values())
    for name, values in wanted.items():
        if name in ("dataset", "method"):
            continue
        of = {record.key: record.cell.flat().get(name) for record in kept}
        present = {str(value) for value in of.values()}
        kept = [record for record in kept if any(has_value(of[record.key], text) for text in values)]
        if not kept:
            known = ", ".join(sorted(present)[:12])
            raise UserError(f"--by {name}={','.join(values)}: no record has this value; there are {known}")
    return results.restricted(kept)


def on_datasets(figure: Figure, given: list[str], present: Mapping[str, str]) -> Drawing | None:
    """The figure on the datasets the user names; None if it has no panel for any of them. `present`: dataset -> task.

    A stand-in replaces the dataset that it stands for, and the other panels stay. For a dataset of the paper, or the
    user's own with the same task as a panel, only its panels are drawn.
    """
    known = {*catalogue.datasets(), *present}
    for name in given:
        if name not in known:
            raise UserError(f"--by dataset={name}: there is no such dataset: {nearest(name, sorted(known))}")
    stand_ins = {catalogue.family(of): name for name in given if (of := catalogue.stands_for(name))}
    alone = [name for name in given if not catalogue.stands_for(name)]
    panels: list[Panel] = []
    changed = False
    for panel in figure.panels:
        if panel.dataset in given:
            panels.append(panel)
            changed = True
        elif (stand_in := stand_ins.get(catalogue.family(panel.dataset))) is not None:
            panels.append(panel.on(stand_in))
            changed = True
        elif alone:
            task = catalogue.datasets().get(panel.dataset, {}).get("task")
            fitting = [panel.on(name) for name in alone if name not in catalogue.PAPER and present.get(name) == task]
            panels += fitting
            changed = changed or bool(fitting)
        else:
            panels.append(panel)
    unique = tuple(dict.fromkeys(panels))
    return Drawing(figure, f"{figure.id}-{'+'.join(given)}", unique) if changed else None


def drawings(figure: Figure, present: Mapping[str, str], parameterisations: set[str]) -> list[Drawing]:
    """The drawings of a figure if the user does not choose any.

    The figure with the paper's datasets. If one of them has no records but a stand-in has, also the figure with
    stand-ins, under another name. Each of them for every parameterisation that was run.
    """
    found = [Drawing(figure, figure.id, figure.panels)]
    wanted: dict[str, list[str]] = {}
    for dataset in dict.fromkeys(panel.dataset for panel in figure.panels):
        if dataset not in present:
            used = [
                name for name in catalogue.stand_ins(dataset) if name in present and not drawn_from_definition(name)
            ]
            if used:
                wanted.setdefault(catalogue.family(dataset), used)
    if len(wanted) == 1:
        for name in next(iter(wanted.values())):
            found.append(_with_stand_ins(figure, {name}, present, f"{figure.id}-{name}"))
    elif wanted:
        found.append(
            _with_stand_ins(figure, {several[0] for several in wanted.values()}, present, f"{figure.id}-standins")
        )
    if figure.both:
        found += [
            replace(drawing, name=f"{drawing.name}-{other}", parameterisation=other)
            for drawing in found
            for other in PARAMETERISATIONS[1:]
            if other in parameterisations
        ]
    return found


def _with_stand_ins(figure: Figure, names: set[str], present: Mapping[str, str], title: str) -> Drawing:
    """Datasets without records replaced by stand-ins; a dataset of the same family with records keeps its panel."""
    stand_in_of = {catalogue.family(catalogue.stands_for(name) or ""): name for name in names}
    panels = (
        panel if panel.dataset in present or catalogue.family(panel.dataset) not in stand_in_of
        else panel.on(stand_in_of[catalogue.family(panel.dataset)])
        for panel in figure.panels
    )  # fmt: skip
    return Drawing(figure, title, tuple(dict.fromkeys(panels)))
