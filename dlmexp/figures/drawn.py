"""A figure with its numbers, and what is said beside it: setting, repetitions, stand-ins, what was not run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp import catalogue
from dlmexp.figures import style
from dlmexp.figures.grid import render
from dlmexp.figures.numbers import WHITENED, Measured
from dlmexp.figures.panels import Figure
from dlmexp.records.results import ResultsFolder
from dlmexp.records.table import Term

INTERVAL = "95 % interval of the mean (Student's t)"


@dataclass(frozen=True)
class Request:
    """What is asked of `dlmexp plot`, figures aside."""

    by: Mapping[str, list[str]] = field(default_factory=dict)  # column -> the values to draw (`choose.parse_by`)
    protocol: str | None = None  # None: paper, or if nothing of it was run the one with most results
    where: tuple[Term, ...] = ()  # changed settings (`parse_where`)
    parameterisation: str | None = None  # of q; None: whitened, or what there is, and a variant where both were run
    compare_protocols: bool = False  # all that were run, side by side


@dataclass
class Drawn:
    """A figure with its numbers: `measured` by panel and protocol (one, unless they stand side by side)."""

    figure: Figure
    name: str  # of its files
    measured: list[list[Measured]]
    results: ResultsFolder
    request: Request = field(default_factory=Request)
    protocols: tuple[str, ...] = ()  # side by side

    @property
    def cells(self) -> list[Measured]:
        """The numbers of all panels and protocols."""
        return [one for panel in self.measured for one in panel]

    @property
    def run(self) -> list[Measured]:
        """The cells that have results."""
        return [one for one in self.cells if one.filled]

    @cached_property
    def canvas(self) -> Canvas:
        """The picture, as a matplotlib figure."""
        with style.use():
            return render(self.figure, self.measured, self.protocols)

    @cached_property
    def _table(self) -> pd.DataFrame:
        several = [(one, series) for one in self.run for series in one.filled]
        about = [
            {
                "dataset": one.panel.dataset, "metric": one.panel.metric, "against": one.panel.against, "n": one.n,
                "method": f"{line.method} {line.version}".strip(), "estimator": line.estimator,
                "samples": line.samples, "beta": line.beta, "parameterisation": one.parameterisation,
                "setting": f"{one.protocol} with {one.changes}" if one.changes else one.protocol,
            }
            for one, line in ((one, series.line) for one, series in several)
        ]  # fmt: skip
        points = [series.points.assign(series=i) for i, (_, series) in enumerate(several)]
        if not points:
            return pd.DataFrame()
        table = pd.DataFrame(about, dtype=object).merge(pd.concat(points), left_index=True, right_on="series")
        return table.drop(columns="series").reset_index(drop=True).dropna(axis="columns", how="all")

    @property
    def constants(self) -> dict[str, Any]:
        """What all rows of the numbers share, where they are points of curves: named once, in the notes."""
        if any(one.panel.kind != "curve" for one in self.cells):
            return {}
        table = self._table
        return {str(name): table[name].iloc[0] for name in table if table[name].nunique(dropna=False) == 1}

    @property
    def csv(self) -> pd.DataFrame:
        """The numbers, a row per point."""
        return self._table.drop(columns=[*self.constants])

    @property
    def text(self) -> str:
        """The caption file, in Markdown."""
        title = self.figure.title or self.figure.id
        return "\n".join([f"# {title}", "", self.figure.caption, "", *(f"- {note}" for note in self.notes), ""])

    @property
    def commands(self) -> list[str]:
        """What computes each panel, under the protocol that is drawn; in the order of the panels, each once."""
        return list(dict.fromkeys(command for one in self.cells if (command := self._command(one))))

    def _command(self, one: Measured) -> str:
        if not one.panel.experiment or catalogue.is_own(one.panel.dataset):
            return self.results.command(one.command) if one.command else ""
        preset, protocol = catalogue.of_preset(one.asked or "paper")
        words = [f"dlmexp run experiment={one.panel.experiment} dataset={one.panel.dataset}"]
        words += [f"protocol={protocol}"] if protocol != "paper" else []
        return self.results.command(" ".join(words + ([f"preset={preset}"] if preset else [])))

    @cached_property
    def notes(self) -> list[str]:
        """One line each, for the caption file and the terminal; nothing where nothing was run."""
        if not self.run:
            return []
        said = [f"Setting: {self._settings()}."]
        if repetitions := self._repetitions():
            said.append(f"Repetitions: {repetitions}. {self._intervals()}".strip())
        shown = {one.panel.dataset: catalogue.stands_for(one.panel.dataset) for one in self.run}
        stand_ins = [f"{name} for the paper's {catalogue.family(of)}" for name, of in shown.items() if of]
        said += [f"Stand-ins: {', '.join(stand_ins)}."] if stand_ins else []
        only = [f"{name} = {' or '.join(values)}" for name, values in self.request.by.items() if name != "dataset"]
        said += [f"Only results with {', '.join(only)}."] if only else []
        said += self._missing()
        said += dict.fromkeys(f"{self._where(one)}: {note}." for one in self.run for note in one.notes)
        said += self._left_out()
        same = [f"{name} = {value}" for name, value in self.constants.items()]
        return said + ([f"In all rows of the CSV: {', '.join(same)}."] if same else [])

    def _where(self, one: Measured) -> str:
        return f"{one.panel.dataset} [{one.asked}]" if self.protocols else one.panel.dataset

    def _settings(self) -> str:
        """`protocol paper`; with the datasets where they differ."""
        by_text: dict[str, dict[str, None]] = {}
        for one in self.run:
            preset, _ = catalogue.of_preset(one.protocol or "")
            text = f"protocol {one.protocol}" + (f" with {one.changes}" if one.changes else "")
            text += f" (preset {preset}: fewer seeds, sizes, betas and iterations)" if preset else ""
            text += f", q {one.parameterisation}" if one.parameterisation != WHITENED else ""
            by_text.setdefault(text, {})[one.panel.dataset] = None
        return "; ".join(_with_places(by_text, "{}: {}"))

    def _repetitions(self) -> str:
        """`5`; `5 (regression), 20 (binary, count)` where tasks differ; `3 to 5` where points of a task do."""
        counts: dict[str, set[int]] = {}
        for one in self.run:
            for series in one.filled if one.panel.kind != "histogram" else ():
                counts.setdefault(one.task, set()).update(int(n) for n in series.points["repetitions"] if n > 0)
        by_text: dict[str, dict[str, None]] = {}
        for task, of in counts.items():
            if of:
                by_text.setdefault(" to ".join(map(str, sorted({min(of), max(of)}))), {})[task] = None
        return ", ".join(_with_places(by_text, "{} ({})"))

    def _intervals(self) -> str:
        kinds = {one.panel.kind for one in self.run if not one.panel.median} - {"histogram"}
        if kinds == {"effects"}:
            return f"Intervals: {INTERVAL} of paired differences."
        return f"Bands: {INTERVAL}." if kinds else ""

    def _missing(self) -> list[str]:
        """Panels, lines and sizes without results, with what computes them."""
        said = []
        for one in self.cells:
            absent = [series.line.label for series in one.series if series.points.empty]
            gaps = [""] if not one.filled else [f": {', '.join(absent)}"] if absent else []
            if one.panel.kind == "sizes" and one.panel.x in ("n", "M"):
                reached = {series.line.label: {int(x) for x in series.points["x"]} for series in one.filled}
                lacking = {label: sorted(set().union(*reached.values()) - own) for label, own in reached.items()}
                gaps += [f": {label} at {one.panel.x} = {', '.join(map(str, some))}" for label, some in lacking.items()
                         if some]  # fmt: skip
            computes = f" -> {command}" if (command := self._command(one)) else ""
            said += [f"Not run: {self._where(one)}{gap}{computes}" for gap in gaps]
        return list(dict.fromkeys(said))

    def _left_out(self) -> list[str]:
        """Results of other settings on these datasets, with the options that draw them."""
        by_options: dict[str, dict[str, int]] = {}
        for one in self.cells:
            for options, cells in one.others:
                own = by_options.setdefault(options, {})
                own[one.panel.dataset] = max(own.get(one.panel.dataset, 0), cells)
        request = self.request
        words = [f"--by {name}={','.join(values)}" for name, values in request.by.items()]
        words += [f"--parameterisation {request.parameterisation}"] if request.parameterisation else []
        plot = " ".join(["dlmexp plot", self.figure.id, *words])
        return [
            f"Left out: {sum(own.values())} results of another setting -> "
            + self.results.command(f"{plot} {options}".rstrip())
            for options, own in by_options.items()
            if options not in {f"--protocol {name}" for name in self.protocols}
        ]


def _with_places(texts: Mapping[str, Iterable[str]], form: str) -> Iterator[str]:
    """Each text, with its places where they differ from those of others."""
    alike = len({tuple(places) for places in texts.values()}) == 1
    return (text if alike else form.format(text, ", ".join(places)) for text, places in texts.items())
