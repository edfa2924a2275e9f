"""Which drawings to make of a figure: on the paper's data, on stand-ins under their own names, under either q."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dlmexp import catalogue
from dlmexp.config import PARAMETERISATIONS
from dlmexp.data.parsers.registry import drawn_from_definition
from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import Figure, Panel
from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS
from dlmexp.records.results import Results


@dataclass(frozen=True)
class Drawing:
    """A figure to draw: panels with the datasets they are really drawn on, and the name of its files."""

    figure: Figure
    name: str
    panels: tuple[Panel, ...]
    parameterisation: str = "whitened"

    @property
    def stand_ins(self) -> dict[str, str]:
        """Stand-in -> the paper's dataset, as far as this drawing uses any."""
        own = {panel.dataset for panel in self.figure.panels}
        used = dict.fromkeys(panel.dataset for panel in self.panels if panel.dataset not in own)
        return {name: of for name in used if (of := catalogue.stands_for(name))}


def parse_by(terms: Iterable[str]) -> dict[str, list[str]]:
    """`field=value[,value...]` terms as a dictionary; a field that no cell has is refused."""
    valid = [name for name in (*FIELDS, *FIRST_OPTIONS) if name != "options"]
    wanted: dict[str, list[str]] = {}
    for term in terms:
        name, equals, values = term.partition("=")
        if not equals or not values:
            raise UserError(f"--by {term}: write field=value, for instance dataset=flights")
        if name not in valid:
            raise UserError(f"--by {term}: a cell has no field '{name}': {nearest(name, valid)}")
        wanted.setdefault(name, []).extend(values.split(","))
    return wanted


def restrict(results: Results, wanted: dict[str, list[str]]) -> Results:
    """Only the records whose fields have one of the wanted values (`dataset` chooses panels instead)."""
    kept = list(results.records.values())
    for name, values in wanted.items():
        if name == "dataset":
            continue
        of = {record.key: record.cell.flat().get(name) for record in kept}
        present = {str(value) for value in of.values()}
        kept = [record for record in kept if any(_same(of[record.key], text) for text in values)]
        if not kept:
            there = ", ".join(sorted(present)[:12])
            raise UserError(f"--by {name}={','.join(values)}: no record has that; there are {there}")
    return results.restricted(kept)


def _same(value: object, text: str) -> bool:
    if value is None:
        return text.lower() in ("none", "null")
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(text) == float(value)
        except ValueError:
            return False
    return str(value).lower() == text.lower()


def on_datasets(figure: Figure, given: list[str], present: Mapping[str, str]) -> Drawing | None:
    """The figure on the datasets the user names; None if it has no panel for any of them. `present`: dataset -> task.

    A stand-in takes the place of what it stands for, the other panels stay. A dataset of the paper, or one of the
    user's own with a fitting task, is drawn alone.
    """
    known = {*catalogue.datasets(), *present}
    for name in given:
        if name not in known:
            raise UserError(f"--by dataset={name}: there is no such dataset: {nearest(name, sorted(known))}")
    stand_ins = {catalogue.family(of): name for name in given if (of := catalogue.stands_for(name))}
    alone = [name for name in given if not catalogue.stands_for(name)]
    panels: list[Panel] = []
    touched = False
    for panel in figure.panels:
        if panel.dataset in given:
            panels.append(panel)
            touched = True
        elif (stand_in := stand_ins.get(catalogue.family(panel.dataset))) is not None:
            panels.append(panel.on(stand_in))
            touched = True
        elif alone:
            task = catalogue.datasets().get(panel.dataset, {}).get("task")
            fitting = [panel.on(name) for name in alone if name not in catalogue.PAPER and present.get(name) == task]
            panels += fitting
            touched = touched or bool(fitting)
        else:
            panels.append(panel)
    unique = tuple(dict.fromkeys(panels))
    return Drawing(figure, f"{figure.id}-{'+'.join(given)}", unique) if touched else None


def drawings(figure: Figure, present: Mapping[str, str], parameterisations: set[str]) -> list[Drawing]:
    """What to draw of a figure without being asked for anything in particular.

    The figure on the paper's data; where some of that has no records but a stand-in with an experiment of its own
    has, the figure on stand-ins too, under a name that says so; each under the parameterisations that were run.
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
            found.append(_standing_in(figure, {name}, present, f"{figure.id}-{name}"))
    elif wanted:
        found.append(
            _standing_in(figure, {several[0] for several in wanted.values()}, present, f"{figure.id}-standins")
        )
    if figure.both:
        found += [
            replace(drawing, name=f"{drawing.name}-{other}", parameterisation=other)
            for drawing in found
            for other in PARAMETERISATIONS[1:]
            if other in parameterisations
        ]
    return found


def _standing_in(figure: Figure, names: set[str], present: Mapping[str, str], title: str) -> Drawing:
    """Stand-ins in the place of what has no records; a Peds1 direction that was run keeps its panel."""
    place = {catalogue.family(catalogue.stands_for(name) or ""): name for name in names}
    panels = (
        panel if panel.dataset in present or catalogue.family(panel.dataset) not in place
        else panel.on(place[catalogue.family(panel.dataset)])
        for panel in figure.panels
    )  # fmt: skip
    return Drawing(figure, title, tuple(dict.fromkeys(panels)))
