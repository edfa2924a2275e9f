"""The page: findings, verdicts, figures, table of results and small print put into the template.
All numbers are from the tidy table."""

import base64
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Canvas
from PIL import Image

from dlmexp import __version__
from dlmexp.common.catalogue import labelled
from dlmexp.common.console import counted, duration
from dlmexp.common.processes import map_in_processes
from dlmexp.experiment.plan.cell import assignments
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import parse_where
from dlmexp.experiment.records.table import IDENTITY, as_text
from dlmexp.presentation.claims.evidence import Evidence
from dlmexp.presentation.claims.judge import Column, judge, rows_of
from dlmexp.presentation.claims.render import by_claim, changes, part_words, summaries
from dlmexp.presentation.claims.rules import ALPHA, Verdict, compare
from dlmexp.presentation.figures.looks import paper_style
from dlmexp.presentation.figures.own import own_datasets
from dlmexp.presentation.figures.panels import FIGURES
from dlmexp.presentation.figures.plot import Request, drawings
from dlmexp.presentation.labels import METRICS, estimator_label, method_label

FIRST = (
    *(
        "selection",
        "reg-log",
        "reg-sq",
        "class-log",
        "count-log",
        "airline",
        "reg-learning",
        "count-learning",
    ),
    *("bias", "calibration", "anatomy", "inducing", "truth", "default"),
)  # figures on the page, the paper's figure 1 first; `dlmexp plot` draws the others
LINES = 10  # of verdicts at the top
CLEAR = (
    Verdict.HOLDS,
    Verdict.FAILS,
    Verdict.BETTER_WITHIN,
    Verdict.WORSE_WITHIN,
    Verdict.NO_DIFFERENCE,
)
COLOURS, DOTS_PER_INCH = 256, 130  # of the pictures
MADE = ["command", "commit", "version", "device", "host", "python", "torch", "gpytorch"]
LINE = [*(name for name in IDENTITY if name not in ("task", "size", "seed")), "M"]
MOST_ROWS = 4000  # beyond that a browser on a phone gives up; `dlmexp collect` has the whole table


def made(results: ResultsFolder) -> pd.DataFrame:
    """Each way in which records were made (a command, commit, machine and versions) with their
    number, the most frequent first; the index is the number by which the page refers to it."""
    cells = results.candidates.drop_duplicates("key")
    counts = cells.groupby(MADE, dropna=False, observed=True).size().rename("records")
    return counts.sort_values(ascending=False).reset_index()


def overview(results: ResultsFolder) -> dict[str, Any]:
    """Counts, datasets with what they stand in for, experiments and times."""
    cells = results.candidates.drop_duplicates("key")
    named = (
        cells[["dataset", "stands_for"]]
        .drop_duplicates()
        .sort_values("dataset")
        .itertuples(index=False)
    )
    times = cells["time"].dropna().astype(object)
    return {
        "cells": len(cells), "failed": int((cells["status"] != "done").sum()),
        "datasets": [labelled(dataset, of) for dataset, of in named],
        "experiments": sorted(set(", ".join(results.candidates["experiment"].unique()).split(", "))),
        "seconds": float(cells["seconds"].sum()),
        "first": str(times.min())[:10] if len(times) else "", "last": str(times.max())[:10] if len(times) else "",
    }  # fmt: skip


def failures(results: ResultsFolder, examples: int = 5) -> list[tuple[str, int, list[str]]]:
    """Reason, number of cells and some of them, the most frequent first."""
    cells = results.candidates.drop_duplicates("key")
    cells = cells[cells["status"] != "done"]
    found = []
    for reason, some in cells.groupby(
        cells["reason"].astype(object).fillna("no reason given"), sort=True
    ):
        shown = [
            f"{c.dataset} n={c.n} seed={c.seed} {method_label(str(c.method))}"
            for c in some.head(examples).itertuples()
        ]  # pyright: ignore
        found.append((str(reason), len(some), shown))
    return sorted(found, key=lambda item: -item[1])


def findings(results: ResultsFolder, column: Column, most: int = 5) -> list[dict[str, Any]]:
    """How the best method stands to ELBO in test NLL at the largest size of each dataset, with the
    95 % interval of the paired difference; the largest differences, measured in margins, first."""
    table = rows_of(results.table, column)
    evidence = Evidence(results, table, rows_of(results.candidates, column))
    methods = [name for name in table["method"].unique() if name != "elbo"]
    found = []
    for dataset in evidence.sizes:
        for q in dict.fromkeys(q for name, q in evidence.places(dataset) if name == dataset):
            elbo, margin = (
                evidence.fit(dataset, "elbo", "nll", q),
                evidence.margin(dataset, "nll", q),
            )
            lines = {name: evidence.fit(dataset, name, "nll", q) for name in methods}
            if not lines:
                continue
            ours = np.stack([line.values for line in lines.values()])
            several = compare(ours, np.broadcast_to(elbo.values, ours.shape))
            known = np.where(several.repetitions > 1, several.ours, np.inf)
            sizes = np.flatnonzero(np.isfinite(known).any(0) & np.isfinite(margin))
            if not len(sizes):
                continue
            s = sizes[-1]
            k = int(known[:, s].argmin())
            line = list(lines.values())[k]
            found.append({
                "dataset": labelled(dataset, evidence.stands_for.get(dataset)), "q": q, "margin": float(margin[s]),
                "n": int(evidence.sizes[dataset][s]), "method": line.name, "nll": several.ours[k, s],
                "elbo": several.rival[k, s], "difference": several.difference[k, s],
                "error": several.half_width(ALPHA / 2)[k, s], "repetitions": int(several.repetitions[k, s]),
                **evidence.made(line.at, elbo.at),
            })  # fmt: skip
    found.sort(key=lambda one: -abs(one["difference"]) / one["margin"])
    return list({one["dataset"]: one for one in reversed(found)}.values())[::-1][:most]


def rows(results: ResultsFolder) -> pd.DataFrame:
    """Mean and deviation of test metrics over repetitions: fits at the beta that validation
    selected by NLL (square loss: MSE), learning curves at each beta. `made` refers to the most
    frequent way in which they were made."""
    table, candidates = results.table, results.candidates
    fits = table[(table["role"] == "fit") & (table["status"] != "incomplete")]
    fits = (
        fits.sort_values("selected_by", ascending=False)
        .drop_duplicates("group")
        .assign(curve=np.nan)
    )
    curves = candidates[candidates["role"] == "curve"].drop_duplicates(["key", "method"])
    both = pd.concat([fits, curves.assign(curve=curves["beta"])], ignore_index=True)
    metrics = [
        f"test_{name}"
        for name in METRICS
        if f"test_{name}" in both and not name.startswith("width")
    ]
    ways = made(results)
    numbers = both[MADE].merge(ways.reset_index(), on=MADE, how="left")["index"]
    both = both.assign(
        made=numbers.to_numpy(),
        lost=both["status"].ne("done"),
        converged=both["converged"].eq(True),
    )
    groups = both.groupby([*LINE, "curve"], dropna=False, sort=False, observed=True)
    found = (
        groups[metrics].mean().add_suffix("_mean").join(groups[metrics].std().add_suffix("_std"))
    )
    found = found.join(groups.agg(
        beta=("beta", "median"), repetitions=("seed", "nunique"), lost=("lost", "sum"), converged=("converged", "mean"),
        seconds=("seconds", "sum"), made=("made", "first"),
    )).reset_index()  # fmt: skip
    found = as_text(found)
    found["method"] = found["method"].map(method_label)
    found["estimator"] = [
        estimator_label(*pair) for pair in zip(found["estimator"], found["samples"], strict=True)
    ]
    found["dataset"] = [
        labelled(*pair) for pair in zip(found["dataset"], found["stands_for"], strict=True)
    ]
    return found.sort_values(["dataset", "parameterisation", "n", "method", "estimator", "beta"])


def pictures(results: ResultsFolder, column: Column) -> list[dict[str, Any]]:
    """Figures with any records under a column of verdicts: those of FIRST, and of own data."""
    own = [f"own-{name}" for name in own_datasets(results.table["dataset"].unique())]
    ids = [*(id for id in FIRST if id in FIGURES), *own]
    return [
        picture for picture in map_in_processes(partial(_picture, results, column), ids) if picture
    ]


def _picture(results: ResultsFolder, column: Column, id: str) -> dict[str, Any] | None:
    """A figure under a column of verdicts, with what computes and draws it; None where nothing of
    it was run."""
    terms = assignments(results.changes[column.changes])
    where = parse_where(terms, results.candidates, results.changes)
    request = Request(protocol=column.protocol, where=where)
    drawn = next(drawings(results, [id], request), None)
    if drawn is None or not drawn.run:
        return None
    words = " ".join(
        [f"dlmexp plot {id} --protocol {column.protocol}", *(f"--where {term}" for term in terms)]
    )
    commands = [*drawn.commands, results.command(words)]
    about = {
        "id": id,
        "title": drawn.figure.title,
        "caption": drawn.figure.caption,
        "notes": drawn.notes,
    }
    return about | {"source": source(drawn.canvas), "commands": commands}


def source(canvas: Canvas) -> str:
    """A matplotlib figure as the address of a PNG with few colours."""
    small = BytesIO()
    canvas.set_dpi(DOTS_PER_INCH)
    agg = FigureCanvasAgg(canvas)
    with paper_style():
        agg.draw()  # once; `savefig` would draw twice
    image = Image.fromarray(np.asarray(agg.buffer_rgba())).convert("RGB")
    # Of the ways to choose few colours, this one keeps those of thin lines.
    image = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    image.save(small, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(small.getvalue()).decode()


def page(results: ResultsFolder) -> str:
    """The whole report as HTML. Everything that comes from records is escaped by the template
    engine."""
    environment = Environment(
        loader=PackageLoader("dlmexp.presentation.report", "."), autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "number": number,
        "duration": duration,
        "counted": counted,
        "part": part_words,
    }
    judged, table = judge(results), rows(results)
    claims = list(by_claim(judged))
    rank = {verdict: position for position, verdict in enumerate(CLEAR)}
    apply = any(row.records for _, _, under, _ in claims for row in under.values())
    firsts = {number: next(iter(under.values())) for number, _, under, _ in claims}
    shown = sorted(
        firsts,
        key=lambda one: (rank.get(firsts[one].verdict, len(rank)), firsts[one].basis == "stand-in"),
    )
    return environment.get_template("report.html.j2").render(
        version=__version__, overview=overview(results), columns=[column.label for column in judged.columns],
        findings={column.label: findings(results, column) for column in judged.columns},
        claims=claims if apply else [], shown=shown[:LINES], summaries=summaries(judged),
        changes=changes(judged), first_figure=FIRST[0], pictures=pictures(results, judged.columns[0]),
        rows=table.head(MOST_ROWS).to_dict("records"), left_out=max(len(table) - MOST_ROWS, 0),
        metrics={name: label for name, label in METRICS.items() if table.get(f"test_{name}_mean") is not None
                 and table[f"test_{name}_mean"].notna().any()},
        failures=failures(results), made=made(results).to_dict("records"), here=results.command,
    )  # fmt: skip


def number(value: float, digits: int = 4) -> str:
    """A few digits, an en dash for what there is none of, words for what is not finite."""
    return (
        "–"
        if value != value
        else f"{value:.{digits}g}"
        if abs(value) != float("inf")
        else "not finite"
    )
