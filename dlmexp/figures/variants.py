"""Which drawings to make of a figure: with the paper's datasets or stand-ins, and for which parameterisation of q."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dlmexp import catalogue
from dlmexp.config import PARAMETERISATIONS
from dlmexp.data.parsers.registry import drawn_from_definition
from dlmexp.errors import UserError, nearest
from dlmexp.figures.panels import Figure, Panel
from dlmexp.plan.cell import FIELDS, FIRST_OPTIONS
from dlmexp.records.results import Results
from dlmexp.records.terms import parse_terms
from dlmexp.records.wanted import same

COORDINATES = (
    "dataset",
    "method",
    "task",
    "n",
    "seed",
    "beta",
    "objective",
    "variant",
    "estimator",
    "samples",
    "parameterisation",
)
SETTINGS = {*FIELDS, *FIRST_OPTIONS} - {*COORDINATES, "kind", "base", "options"}


@dataclass(frozen=True)
class Drawing:
    """A variant of a figure to draw: panels with the datasets to use (maybe stand-ins), and the name of its files."""

    figure: Figure
    name: str
    panels: tuple[Panel, ...]
    parameterisation: str = "whitened"
    preset: str = ""  # whose results it shows, if not those of whole experiments
    protocols: tuple[str, ...] = ()  # where protocols stand side by side: that of each panel
    options: tuple[str, ...] = ()  # of `dlmexp plot`, that lead to this drawing
    only: tuple[str, ...] = ()  # the values that `--by` restricts its records to, in words

    @property
    def columns(self) -> int:
        return len(dict.fromkeys(self.protocols)) if self.protocols else min(self.figure.columns, len(self.panels))

    @property
    def stand_ins(self) -> dict[str, str]:
        """The stand-ins in this drawing: stand-in -> dataset of the paper."""
        own = {panel.dataset for panel in self.figure.panels}
        used = dict.fromkeys(panel.dataset for panel in self.panels if panel.dataset not in own)
        return {name: of for name in used if (of := catalogue.stands_for(name))}


def parse_by(terms: Iterable[str]) -> dict[str, list[str]]:
    """`field=value[,value...]` terms as a dictionary; UserError for a field that cells do not have."""
    return parse_terms("--by", terms, COORDINATES, SETTINGS)


def restrict(results: Results, wanted: Mapping[str, list[str]]) -> Results:
    """The results with only the records that have one of the wanted values in each field, and what was asked for under
    the wanted methods. A beta is wanted of methods that have one to choose: others, such as the ELBO, stay. `dataset`
    is ignored here: it selects panels."""
    if methods := wanted.get("method"):
        present = {one.method for one in results.asked}
        for name in methods:
            if name not in present:
                raise UserError(f"--by method={name}: it was not run; there are {', '.join(sorted(present))}")
        results = results.of_methods(methods)
    for name, values in wanted.items():
        if name in ("dataset", "method"):
            continue
        of = {key: record.cell.flat().get(name) for key, record in results.records.items()}
        kept = [results.records[key] for key, value in of.items() if any(same(value, text) for text in values)]
        if not kept:
            known = ", ".join(sorted({str(value) for value in of.values()})[:12])
            raise UserError(f"--by {name}={','.join(values)}: no record has this value; there are {known}")
        without = [one for one in results.asked if not catalogue.selects(one.method)] if name == "beta" else []
        results = results.restricted(kept, without)
    return results


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
    name, options = f"{figure.id}-{'+'.join(given)}", ("--by", f"dataset={','.join(given)}")
    return Drawing(figure, name, unique, options=options) if changed else None


def of_methods(drawing: Drawing, methods: Iterable[str]) -> Drawing:
    """The drawing with the lines of these methods alone, in panels that have any of them; all of it if none has."""
    wanted = set(methods)
    lines = [tuple(line for line in panel.lines if line.method in wanted) for panel in drawing.panels]
    panels = tuple(replace(panel, lines=own) for panel, own in zip(drawing.panels, lines, strict=True) if own)
    return replace(drawing, panels=panels or drawing.panels)


def side_by_side(drawing: Drawing, protocols: Iterable[str]) -> Drawing:
    """A row for each panel, with a column for each protocol."""
    names = tuple(protocols)
    panels = tuple(panel for panel in drawing.panels for _ in names)
    return replace(drawing, name=f"{drawing.name}-protocols", panels=panels, protocols=names * len(drawing.panels))


def drawings(figure: Figure, present: Mapping[str, str], parameterisations: set[str]) -> list[Drawing]:
    """The drawings of a figure if the user does not choose any: one for every parameterisation that was run.

    A dataset of the paper that has no records gives its panels to the first stand-in that has; panels that become equal
    are drawn once.
    """
    panels = tuple(dict.fromkeys(panel.on(_at_hand(panel.dataset, present)) for panel in figure.panels))
    plain = Drawing(figure, figure.id, panels)
    if not figure.both:
        return [plain]
    others = [name for name in PARAMETERISATIONS[1:] if name in parameterisations]
    return [plain, *(replace(plain, name=f"{figure.id}-{other}", parameterisation=other) for other in others)]


def _at_hand(dataset: str, present: Mapping[str, str]) -> str:
    """The dataset itself if it has records, else a stand-in with records; one that is drawn from a definition does not
    pose as the paper's data."""
    if dataset in present:
        return dataset
    used = (name for name in catalogue.stand_ins(dataset) if name in present and not drawn_from_definition(name))
    return next(used, dataset)
