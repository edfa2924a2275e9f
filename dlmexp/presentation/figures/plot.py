"""The work of `dlmexp plot`: figures with their numbers, what is said beside them (setting,
repetitions, stand-ins, what was not run), and their files."""

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp.common import catalogue
from dlmexp.common.atomic import write_atomically
from dlmexp.common.errors import UserError, nearest
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import PAPER, matching
from dlmexp.presentation.figures.choose import Request, figures
from dlmexp.presentation.figures.grid import render
from dlmexp.presentation.figures.numbers import WHITENED, Measured, measure, panel_rows
from dlmexp.presentation.figures.panels import Figure, paper_style

# Formats; without these values, matplotlib writes the time and its version.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "dlmexp", "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "dlmexp"},
}
BOTH = {"whitened", "unwhitened"}  # parameterisations of q
INTERVAL = "95 % interval of the mean (Student's t)"


@dataclass
class Drawn:
    """A figure with its numbers: those of its first panel, under each of the protocols that stand
    side by side, then those of the next."""

    figure: Figure
    name: str  # of its files
    cells: list[Measured]
    results: ResultsFolder
    request: Request
    protocols: tuple[str, ...] = ()  # side by side

    @cached_property
    def run(self) -> list[Measured]:
        """The cells that have results."""
        return [one for one in self.cells if one.filled]

    @cached_property
    def canvas(self) -> Canvas:
        """The picture, as a matplotlib figure."""
        with paper_style():
            return render(self.figure, self.cells, self.protocols)

    @cached_property
    def _numbers(self) -> tuple[pd.DataFrame, dict[str, Any]]:
        """A row per point; and what all rows share, where they are points of curves: named once, in
        the notes."""
        lines = [(one, series.line, series.points) for one in self.run for series in one.filled]
        about = [
            {
                "dataset": one.panel.dataset, "metric": one.panel.metric, "against": one.panel.against, "n": one.n,
                "method": f"{line.method} {line.version}".strip(), "estimator": line.estimator,
                "samples": line.samples, "beta": line.beta, "parameterisation": one.parameterisation,
                "setting": f"{one.protocol} with {one.changes}" if one.changes else one.protocol,
            }
            for one, line, _ in lines
        ]  # fmt: skip
        points = pd.concat([points.assign(series=i) for i, (*_, points) in enumerate(lines)])
        table = pd.DataFrame(about, dtype=object).merge(points, left_index=True, right_on="series")
        table = (
            table.drop(columns="series").reset_index(drop=True).dropna(axis="columns", how="all")
        )
        if any(one.panel.kind != "curve" for one in self.cells):
            return table, {}
        same = {
            str(name): table[name].iloc[0]
            for name in table
            if table[name].nunique(dropna=False) == 1
        }
        return table.drop(columns=[*same]), same

    @property
    def csv(self) -> pd.DataFrame:
        """The numbers, a row per point."""
        return self._numbers[0]

    @property
    def text(self) -> str:
        """The caption file, in Markdown."""
        title = self.figure.title or self.figure.id
        return "\n".join(
            [f"# {title}", "", self.figure.caption, "", *(f"- {note}" for note in self.notes), ""]
        )

    @property
    def commands(self) -> list[str]:
        """What computes each panel, under the protocol that is drawn; in the order of the panels,
        each once."""
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
        settings = [(_setting(one), one.panel.dataset) for one in self.run]
        said = [f"Setting: {'; '.join(_with_places(settings, '{}: {}'))}."]
        if repetitions := ", ".join(_with_places(self._repetitions(), "{} ({})")):
            said.append(f"Repetitions: {repetitions}. {self._intervals()}".strip())
        shown = {one.panel.dataset: catalogue.stands_for(one.panel.dataset) for one in self.run}
        stand_ins = [
            f"{name} for the paper's {catalogue.family(of)}" for name, of in shown.items() if of
        ]
        said += [f"Stand-ins: {', '.join(stand_ins)}."] if stand_ins else []
        only = [
            f"{name} = {' or '.join(values)}"
            for name, values in self.request.by.items()
            if name != "dataset"
        ]
        said += [f"Only results with {', '.join(only)}."] if only else []
        said += [f"Not run: {one}" for one in self.missing]
        said += dict.fromkeys(
            f"{self._where(one)}: {note}." for one in self.run for note in one.notes
        )
        said += self._left_out()
        same = [f"{name} = {value}" for name, value in self._numbers[1].items()]
        return said + ([f"In all rows of the CSV: {', '.join(same)}."] if same else [])

    def _where(self, one: Measured) -> str:
        return f"{one.panel.dataset} [{one.asked}]" if self.protocols else one.panel.dataset

    def _repetitions(self) -> Iterator[tuple[str, str]]:
        """`5`, or `3 to 5` where points differ, with the task."""
        counts: dict[str, set[int]] = {}
        for one in self.run:
            for series in one.filled if one.panel.kind != "histogram" else ():
                counts.setdefault(one.task, set()).update(
                    int(n) for n in series.points["repetitions"] if n > 0
                )
        return (
            (" to ".join(map(str, sorted({min(of), max(of)}))), task)
            for task, of in counts.items()
            if of
        )

    def _intervals(self) -> str:
        kinds = {one.panel.kind for one in self.run if not one.panel.median} - {"histogram"}
        if kinds == {"effects"}:
            return f"Intervals: {INTERVAL} of paired differences."
        return f"Bands: {INTERVAL}." if kinds else ""

    @cached_property
    def missing(self) -> list[str]:
        """Panels, lines and sizes without results, with what computes them."""
        said = []
        for one in self.cells:
            absent = [
                series.line.label
                for series in one.series
                if series.points.empty and one.panel.experiment
            ]
            gaps = [f": {', '.join(absent)}" if one.filled else ""] if absent else []
            if one.panel.kind == "sizes" and one.panel.x in ("n", "M"):
                reached = {
                    series.line.label: {int(x) for x in series.points["x"]} for series in one.filled
                }
                lacking = {
                    label: sorted(set().union(*reached.values()) - own)
                    for label, own in reached.items()
                }
                gaps += [f": {label} at {one.panel.x} = {', '.join(map(str, some))}" for label, some in lacking.items()
                         if some]  # fmt: skip
            computes = f" -> {command}" if (command := self._command(one)) else ""
            said += [f"{self._where(one)}{gap}{computes}" for gap in gaps]
        return list(dict.fromkeys(said))

    def _left_out(self) -> Iterator[str]:
        """Results of other settings on these datasets, with the options that draw them."""
        others = [
            (options, one.panel.dataset, cells)
            for one in self.cells
            for options, cells in one.others
        ]
        counts = pd.DataFrame(others, columns=["options", "dataset", "cells"])
        counts = counts.groupby(["options", "dataset"], sort=False)[
            "cells"
        ].max()  # of the panels of a dataset
        how = self.request.parameterisation
        words = [f"--by {name}={','.join(values)}" for name, values in self.request.by.items()]
        plot = " ".join(
            ["dlmexp plot", self.figure.id, *words, *([f"--parameterisation {how}"] if how else [])]
        )
        for options, count in counts.groupby("options", sort=False).sum().items():
            if options not in {f"--protocol {name}" for name in self.protocols}:
                command = self.results.command(f"{plot} {options}".rstrip())
                yield f"Left out: {count} results of another setting -> {command}"


def _setting(one: Measured) -> str:
    preset, _ = catalogue.of_preset(one.protocol or "")
    text = f"protocol {one.protocol}" + (f" with {one.changes}" if one.changes else "")
    text += f" (preset {preset}: fewer seeds, sizes, betas and iterations)" if preset else ""
    return text + (f", q {one.parameterisation}" if one.parameterisation != WHITENED else "")


def _with_places(pairs: Iterable[tuple[str, str]], form: str) -> Iterator[str]:
    """Each text once, with its places where they differ from those of other texts."""
    texts: dict[str, dict[str, None]] = {}
    for text, place in pairs:
        texts.setdefault(text, {})[place] = None
    alike = len({tuple(places) for places in texts.values()}) == 1
    return (
        text if alike else form.format(text, ", ".join(places)) for text, places in texts.items()
    )


def drawings(results: ResultsFolder, ids: list[str], request: Request) -> Iterator[Drawn]:
    """The figures `ids` (empty: all) with their numbers, those without results too. Figures of
    binary and count data have a second one, `-unwhitened`, where both parameterisations of q were
    run and none is asked for."""
    for figure, name, page in figures(results, ids, request):
        found = [panel_rows(panel, results, request.by, request.where) for panel in figure.panels]
        drawn = _measured(figure, (name, page), results, found, request)
        yield drawn
        run = drawn.run
        if (
            run
            and not page
            and request.parameterisation is None
            and all(one.coordinates for one in run)
        ):
            unwhitened = replace(request, parameterisation="unwhitened")
            other = _measured(figure, (name, ""), results, found, unwhitened)
            if len(other.protocols) > 1 or all(one.coordinates >= BOTH for one in run):
                yield other


def draw(results: ResultsFolder, figure_id: str, request: Request | None = None) -> Drawn:
    """A figure of one folder with its numbers, caption and notes; its `canvas` is drawn when it is
    first asked for. UserError where there is no such figure (`dlmexp plot --list`, or `own-NAME`),
    or nothing of it was run."""
    drawn = next(drawings(results, [figure_id], request or Request()), None)
    if drawn is None or not drawn.run:
        raise UserError(no_results([figure_id], drawn.commands if drawn else []))
    return drawn


def no_results(ids: Iterable[str], run: Iterable[str]) -> str:
    """A sentence on figures of which nothing was run."""
    computed = "; ".join(dict.fromkeys(run))
    return f"there are no results for {', '.join(ids)}" + (
        f"; what computes them: {computed}" if computed else ""
    )


def _measured(
    figure: Figure,
    name: tuple[str, str],
    results: ResultsFolder,
    rows: list[pd.DataFrame],
    request: Request,
) -> Drawn:
    """A figure with its numbers; `name`: that of its files, and its page."""
    how = request.parameterisation
    run = pd.concat(
        [
            one["protocol"][matching(one, request.where, results.changes)].astype(object)
            for one in rows
        ]
    )
    usual = (
        PAPER if (run == PAPER).any() else next(iter(run.mode()), None)
    )  # the same in all panels
    names = [request.protocol or usual]
    if request.compare_protocols:
        fits = [one if how is None else one[one["parameterisation"] == how] for one in rows]
        have = {name for one in fits for name in one["protocol"].unique()}
        ours = [name for name in catalogue.PROTOCOLS if name in have]
        names = [*ours, *sorted(have.difference(ours))] or names
    pairs = zip(figure.panels, rows, strict=True)
    cells = [
        measure(panel, results, own, name, request.where, how)
        for panel, own in pairs
        for name in names
    ]
    beside = tuple(name for name in names if name) if len(names) > 1 else ()
    words = [name[0], how if how == "unwhitened" else "", "protocols" if beside else names[0] or ""]
    words += [
        f"{column}={'+'.join(values)}"
        for column, values in request.by.items()
        if column != "dataset"
    ]
    words += [*(f"{key}={','.join(values)}" for key, values in request.where.items()), name[1]]
    stem = re.sub(
        r"[^\w.=+-]+", "_", "-".join(word for word in words if word not in ("", "paper", "own"))
    )
    return Drawn(figure, stem, cells, results, request, beside)


def parse_formats(text: str) -> list[str]:
    """`pdf,png` as a list; UserError for an unknown format."""
    formats = [name.strip().lower() for name in text.split(",")]
    for name in formats:
        if name not in METADATA:
            raise UserError(
                f"--format {text}: there is no '{name}': {nearest(name, list(METADATA))}"
            )
    return list(dict.fromkeys(formats))


def save(
    folder: Path, name: str, canvas: Canvas, table: pd.DataFrame, text: str, formats: list[str]
) -> str:
    """Writes a picture per format (the same numbers give the same bytes, so without dates), its
    numbers as CSV (with 6 digits, so that they are the same on all machines) and its caption as
    Markdown; returns a line with their names."""
    contents: dict[str, bytes] = {}
    for format in formats:
        with paper_style():
            canvas.savefig(buffer := io.BytesIO(), format=format, metadata=METADATA[format])
        contents[format] = buffer.getvalue()
    contents["csv"] = table.to_csv(index=False, lineterminator="\n", float_format="%.6g").encode()
    contents["md"] = text.encode()
    for suffix, content in contents.items():
        write_atomically(folder / f"{name}.{suffix}", content)
    return f"{name}: {folder / name}.{{{','.join(contents)}}}"
