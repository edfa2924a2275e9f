"""The page: findings, verdicts, figures, results and their origin put into the template.

All numbers are from the tidy table.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from dlmexp import __version__
from dlmexp.common.catalogue import labelled
from dlmexp.common.console import counted, duration
from dlmexp.common.processes import map_in_processes
from dlmexp.experiment.records.columns import IDENTITY
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.settings import parse_where
from dlmexp.experiment.records.table import as_text
from dlmexp.presentation.claims.columns import VerdictColumn
from dlmexp.presentation.claims.judge import ClaimVerdict, JudgedClaim, judge
from dlmexp.presentation.claims.render import (
    numbers_of_test,
    statement_of_part,
    summaries,
    tally_words,
)
from dlmexp.presentation.claims.rules import Verdict
from dlmexp.presentation.figures.own import own_datasets
from dlmexp.presentation.figures.panels import FIGURES
from dlmexp.presentation.figures.plot import Request, drawings
from dlmexp.presentation.labels import METRICS, estimator_label, method_label
from dlmexp.presentation.report.findings import findings
from dlmexp.presentation.report.leaderboards import leaderboards
from dlmexp.presentation.report.picture import png_address

# Figures on the page, the paper's figure 1 first; `dlmexp plot` draws the others.
FIRST = (
    "selection",
    "reg-log",
    "reg-sq",
    "class-log",
    "count-log",
    "airline",
    "reg-learning",
    "count-learning",
    "bias",
    "calibration",
    "anatomy",
    "inducing",
    "truth",
    "default",
)
MOST_VERDICTS = 10  # at the top
# Verdicts in the order in which the top of the page shows them.
CLEAR = (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.PARTLY, Verdict.NOT_TESTED)
# A row of the list of origins is about records that agree in these.
ORIGIN = ["command", "commit", "version", "device", "host", "python", "torch", "gpytorch"]
# A row of the table of results is about repetitions that agree in these.
RESULT = [*(name for name in IDENTITY if name not in ("task", "size", "seed")), "M"]
MOST_ROWS = 4000  # beyond that a browser on a phone gives up; `dlmexp collect` has the whole table
MOST_EXAMPLES = 5  # of cells that failed for the same reason


@dataclass(frozen=True)
class Overview:
    """What a results folder has.

    Attributes:
        cells: Number of cells that have a record.
        failed: Number of those that failed.
        datasets: The datasets, with what they stand in for.
        experiments: The experiments.
        seconds: Time of training in all.
        first: Day of the first record, such as `2020-12-31`; empty where none has a time.
        last: Day of the last record.
    """

    cells: int
    failed: int
    datasets: list[str]
    experiments: list[str]
    seconds: float
    first: str
    last: str


@dataclass(frozen=True)
class Picture:
    """A figure on the page.

    Attributes:
        id: Its name in `dlmexp plot`.
        title: Its title.
        caption: Its caption.
        notes: What it leaves out.
        source: The picture as a `data:` address.
        commands: What computes the records and draws the figure.
    """

    id: str
    title: str
    caption: str
    notes: list[str]
    source: str
    commands: list[str]


def origins(results: ResultsFolder) -> pd.DataFrame:
    """Return each way in which records came to be, with their number, the most frequent first.

    A way is a command, a commit, a machine and versions. The index is the number by which the page
    refers to it.
    """
    cells = results.candidates.drop_duplicates("key")
    counts = cells.groupby(ORIGIN, dropna=False, observed=True).size().rename("records")
    return counts.sort_values(ascending=False).reset_index()


def overview(results: ResultsFolder) -> Overview:
    """Return counts, datasets, experiments and times of a results folder."""
    cells = results.candidates.drop_duplicates("key")
    datasets = cells[["dataset", "stands_for"]].drop_duplicates().sort_values("dataset")
    # A cell of several experiments has all of their names.
    experiments = ", ".join(results.candidates["experiment"].unique()).split(", ")
    times = cells["time"].dropna().astype(object)
    return Overview(
        cells=len(cells),
        failed=int((cells["status"] != "done").sum()),
        datasets=list(map(labelled, datasets["dataset"], datasets["stands_for"])),
        experiments=sorted(set(experiments)),
        seconds=float(cells["seconds"].sum()),
        first=str(times.min())[:10] if len(times) else "",
        last=str(times.max())[:10] if len(times) else "",
    )


def failures(results: ResultsFolder) -> list[tuple[str, int, list[str]]]:
    """Return the reasons of failure, with the number of cells and examples, most frequent first."""
    cells = results.candidates.drop_duplicates("key")
    failed = cells[cells["status"] != "done"]
    reasons = failed["reason"].astype(object).fillna("no reason given")
    counted_reasons = []
    for reason, of_reason in failed.groupby(reasons, sort=True):
        examples = [_cell_words(row) for row in of_reason.head(MOST_EXAMPLES).itertuples()]
        counted_reasons.append((str(reason), len(of_reason), examples))
    return sorted(counted_reasons, key=lambda item: -item[1])


def _cell_words(row: Any) -> str:
    return f"{row.dataset} n={row.n} seed={row.seed} {method_label(str(row.method))}"


def result_rows(results: ResultsFolder) -> pd.DataFrame:
    """Return mean and deviation of test metrics over repetitions, for the table of results.

    Fits are those with the beta that validation selected by NLL (square loss: MSE), learning curves
    stand at each beta. `origin` refers to the most frequent of their `origins`.
    """
    runs = _runs(results)
    names = [f"test_{name}" for name in METRICS if not name.startswith("width")]
    metrics = [name for name in names if name in runs]
    groups = runs.groupby([*RESULT, "curve_beta"], dropna=False, sort=False, observed=True)
    means = groups[metrics].mean().add_suffix("_mean")
    deviations = groups[metrics].std().add_suffix("_std")
    facts = groups.agg(
        beta=("beta", "median"),
        repetitions=("seed", "nunique"),
        lost=("lost", "sum"),
        converged=("converged", "mean"),
        seconds=("seconds", "sum"),
        origin=("origin", "first"),
    )
    rows = as_text(means.join(deviations).join(facts).reset_index())
    rows["method"] = rows["method"].map(method_label)
    rows["estimator"] = list(map(estimator_label, rows["estimator"], rows["samples"]))
    rows["dataset"] = list(map(labelled, rows["dataset"], rows["stands_for"]))
    return rows.sort_values(["dataset", "parameterisation", "n", "method", "estimator", "beta"])


def _runs(results: ResultsFolder) -> pd.DataFrame:
    """Return the selected fits and the ends of all learning curves, a row per repetition."""
    table = results.table
    candidates = results.candidates
    is_complete_fit = (table["role"] == "fit") & (table["status"] != "incomplete")
    by_nll_first = table[is_complete_fit].sort_values("selected_by", ascending=False)
    fits = by_nll_first.drop_duplicates("group").assign(curve_beta=np.nan)
    of_curves = candidates[candidates["role"] == "curve"]
    curves = of_curves.drop_duplicates(["key", "method"])
    curves = curves.assign(curve_beta=curves["beta"])
    runs = pd.concat([fits, curves], ignore_index=True)
    numbered = origins(results).reset_index(names="origin")
    with_origin = runs[ORIGIN].merge(numbered, on=ORIGIN, how="left")
    return runs.assign(
        origin=with_origin["origin"].to_numpy(),
        lost=runs["status"].ne("done"),
        converged=runs["converged"].eq(True),
    )


def pictures(results: ResultsFolder, column: VerdictColumn) -> list[Picture]:
    """Return the figures with any records under a column: those of FIRST, and of own data."""
    own = [f"own-{name}" for name in own_datasets(results.table["dataset"].unique())]
    ids = [*(id for id in FIRST if id in FIGURES), *own]
    drawn = map_in_processes(partial(_picture, results, column), ids)
    return [picture for picture in drawn if picture]


def _picture(results: ResultsFolder, column: VerdictColumn, id: str) -> Picture | None:
    """Return a figure under a column of verdicts; None where nothing of it was run."""
    where = parse_where(column.terms, results.candidates, results.changes)
    request = Request(protocol=column.protocol, where=where)
    drawn = next(drawings(results, [id], request), None)
    if drawn is None or not drawn.run:
        return None
    options = [f"--where {term}" for term in column.terms]
    command = " ".join([f"dlmexp plot {id} --protocol {column.protocol}", *options])
    return Picture(
        id=id,
        title=drawn.figure.title,
        caption=drawn.figure.caption,
        notes=drawn.notes,
        source=png_address(drawn.canvas),
        commands=[*drawn.commands, results.command(command)],
    )


def page(results: ResultsFolder) -> str:
    """Return the whole report as HTML.

    Everything that comes from records is escaped by the template engine.
    """
    judged = judge(results)
    claims = judged.by_claim()
    any_records = any(verdict.origin.records for verdict in judged.verdicts)
    rows = result_rows(results)
    findings_by_column = {column.label: findings(results, column) for column in judged.columns}
    return _environment().get_template("report.html.j2").render(
        version=__version__,
        overview=overview(results),
        columns=[column.label for column in judged.columns],
        findings=findings_by_column,
        claims=claims if any_records else [],
        shown=_clearest(claims),
        summaries=summaries(judged),
        leaderboards=leaderboards(results),
        first_figure=FIRST[0],
        pictures=pictures(results, judged.columns[0]),
        rows=rows.head(MOST_ROWS).to_dict("records"),
        left_out=max(len(rows) - MOST_ROWS, 0),
        metrics=_metrics_with_values(rows),
        failures=failures(results),
        origins=origins(results).to_dict("records"),
        here=results.command,
    )  # fmt: skip


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("dlmexp.presentation.report", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = number
    environment.filters["duration"] = duration
    environment.filters["counted"] = counted
    environment.filters["statement"] = statement_of_part
    environment.filters["numbers"] = numbers_of_test
    environment.filters["tally"] = tally_words
    return environment


def _clearest(claims: list[JudgedClaim]) -> list[int]:
    """Return the numbers of the claims at the top of the page.

    They are those with the clearest verdicts under the first column; of equals, those with the most
    tests.
    """
    under_first_column = [next(iter(claim.by_column.values())) for claim in claims]
    clearest_first = sorted(under_first_column, key=_unclarity)
    return [verdict.claim.number for verdict in clearest_first[:MOST_VERDICTS]]


def _unclarity(verdict: ClaimVerdict) -> tuple[int, int]:
    """Return the key that sorts the clearest verdicts first, and of equals those of most tests."""
    return CLEAR.index(verdict.verdict), -verdict.tally.tests


def _metrics_with_values(rows: pd.DataFrame) -> dict[str, str]:
    """Return the metrics that any row has, with their labels."""
    present = [name for name in METRICS if f"test_{name}_mean" in rows]
    return {name: METRICS[name] for name in present if rows[f"test_{name}_mean"].notna().any()}


def number(value: float, digits: int = 4) -> str:
    """Return a number with a few digits, an en dash for NaN, words for an infinite one."""
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "not finite"
    return f"{value:.{digits}g}"
