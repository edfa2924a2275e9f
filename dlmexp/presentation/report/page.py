"""Write the HTML page of a results folder: findings, verdicts, figures, results, their origins.

All numbers are computed from the tidy table and the arrays of records. The template is
`report.html.j2`.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from dlmexp import __version__
from dlmexp.common.catalogue import dataset_label
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
from dlmexp.presentation.figures.own import OWN_PREFIX, own_datasets
from dlmexp.presentation.figures.panels import FIGURES
from dlmexp.presentation.figures.plot import Request, drawings
from dlmexp.presentation.labels import METRICS, estimator_label, method_label
from dlmexp.presentation.report.findings import findings
from dlmexp.presentation.report.leaderboards import leaderboards
from dlmexp.presentation.report.picture import png_address

# The figures on the page, the paper's figure 1 first. `dlmexp plot` draws the others.
FIGURES_ON_PAGE = (
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
MAX_VERDICTS = 10  # at the top of the page
# The verdicts, in the order in which the top of the page shows claims with them.
CLEAREST_FIRST = (Verdict.REPRODUCED, Verdict.NOT_REPRODUCED, Verdict.PARTLY, Verdict.NOT_TESTED)
# A row of the list of origins is about records with equal values in these columns.
ORIGIN_COLUMNS = ["command", "commit", "version", "device", "host", "python", "torch", "gpytorch"]
# A row of the table of results is about repetitions with equal values in these columns.
RESULT_COLUMNS = [*(name for name in IDENTITY if name not in ("task", "size", "seed")), "M"]
# More rows of results are too many for a browser on a phone. `dlmexp collect` writes all rows.
MAX_ROWS = 4000
MAX_EXAMPLES = 5  # cells that are listed for a reason of failure


@dataclass(frozen=True)
class Overview:
    """The contents of a results folder in numbers.

    Attributes:
        cells: The number of cells that have a record.
        failed: The number of cells that failed.
        datasets: The labels of the datasets. Those of stand-ins also have the datasets of the paper
            that they represent.
        experiments: The names of the experiments.
        seconds: The total time of training.
        first: The day of the first record, such as `2020-12-31`; '' if no record has a time.
        last: The day of the last record.
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
        id: Its ID in `dlmexp plot`.
        title: The title.
        caption: The caption.
        notes: Notes on settings and on what is left out.
        source: The picture as a `data:` address.
        commands: The commands that compute the records, and the one that draws the figure.
    """

    id: str
    title: str
    caption: str
    notes: list[str]
    source: str
    commands: list[str]


def origins(results: ResultsFolder) -> pd.DataFrame:
    """Return the origins of records with their number of records, the most frequent first.

    An origin is a command with a commit, a machine and versions of software. The page refers to an
    origin by the index of its row.
    """
    cells = results.candidates.drop_duplicates("key")
    counts = cells.groupby(ORIGIN_COLUMNS, dropna=False, observed=True).size().rename("records")
    return counts.sort_values(ascending=False).reset_index()


def overview(results: ResultsFolder) -> Overview:
    """Return counts, datasets, experiments and times of a results folder."""
    cells = results.candidates.drop_duplicates("key")
    datasets = cells[["dataset", "stands_for"]].drop_duplicates().sort_values("dataset")
    # The column has the names of all experiments of a cell, separated by commas.
    experiments = ", ".join(results.candidates["experiment"].unique()).split(", ")
    times = cells["time"].dropna().astype(object)
    return Overview(
        cells=len(cells),
        failed=int((cells["status"] != "done").sum()),
        datasets=list(map(dataset_label, datasets["dataset"], datasets["stands_for"])),
        experiments=sorted(set(experiments)),
        seconds=float(cells["seconds"].sum()),
        first=str(times.min())[:10] if len(times) else "",
        last=str(times.max())[:10] if len(times) else "",
    )


def failures(results: ResultsFolder) -> list[tuple[str, int, list[str]]]:
    """Return each reason of failure, the most frequent first.

    A reason comes with its number of cells, and with some of these cells as examples.
    """
    cells = results.candidates.drop_duplicates("key")
    failed = cells[cells["status"] != "done"]
    reasons = failed["reason"].astype(object).fillna("no reason given")
    by_reason = []
    for reason, rows in failed.groupby(reasons, sort=True):
        examples = [_cell_in_words(row) for row in rows.head(MAX_EXAMPLES).itertuples()]
        by_reason.append((str(reason), len(rows), examples))
    return sorted(by_reason, key=lambda failure: -failure[1])


def _cell_in_words(row: Any) -> str:
    """Return the dataset, size, seed and method of a cell as a text."""
    return f"{row.dataset} n={row.n} seed={row.seed} {method_label(str(row.method))}"


def result_rows(results: ResultsFolder) -> pd.DataFrame:
    """Return mean and deviation of test metrics over repetitions, for the table of results.

    Fits have the beta that validation selected: by MSE for methods of square loss, by NLL for all
    others. Learning curves have a row for each beta. The column `origin` is the index in `origins`
    of the origin of the first repetition.
    """
    runs = _runs(results)
    shown_metrics = [f"test_{name}" for name in METRICS if not name.startswith("width")]
    metrics = [name for name in shown_metrics if name in runs]
    groups = runs.groupby([*RESULT_COLUMNS, "curve_beta"], dropna=False, sort=False, observed=True)
    means = groups[metrics].mean().add_suffix("_mean")
    deviations = groups[metrics].std().add_suffix("_std")
    other_columns = groups.agg(
        beta=("beta", "median"),
        repetitions=("seed", "nunique"),
        lost=("lost", "sum"),
        converged=("converged", "mean"),
        seconds=("seconds", "sum"),
        origin=("origin", "first"),
    )
    rows = as_text(means.join(deviations).join(other_columns).reset_index())
    rows["method"] = rows["method"].map(method_label)
    rows["estimator"] = list(map(estimator_label, rows["estimator"], rows["samples"]))
    rows["dataset"] = list(map(dataset_label, rows["dataset"], rows["stands_for"]))
    return rows.sort_values(["dataset", "parameterisation", "n", "method", "estimator", "beta"])


def _runs(results: ResultsFolder) -> pd.DataFrame:
    """Return the selected fits and the ends of all learning curves, with a row per repetition."""
    table = results.table
    candidates = results.candidates
    is_complete_fit = (table["role"] == "fit") & (table["status"] != "incomplete")
    # A fit that was selected by both metrics has two rows. The row by NLL is taken: in descending
    # order, `nll` comes before `mse`.
    by_nll_first = table[is_complete_fit].sort_values("selected_by", ascending=False)
    fits = by_nll_first.drop_duplicates("group").assign(curve_beta=np.nan)
    is_curve = candidates["role"] == "curve"
    curves = candidates[is_curve].drop_duplicates(["key", "method"])
    curves = curves.assign(curve_beta=curves["beta"])
    runs = pd.concat([fits, curves], ignore_index=True)
    numbered_origins = origins(results).reset_index(names="origin")
    with_origin = runs[ORIGIN_COLUMNS].merge(numbered_origins, on=ORIGIN_COLUMNS, how="left")
    return runs.assign(
        origin=with_origin["origin"].to_numpy(),
        lost=runs["status"].ne("done"),
        converged=runs["converged"].eq(True),
    )


def pictures(results: ResultsFolder, column: VerdictColumn) -> list[Picture]:
    """Return the figures that have results in the setting of a column of verdicts.

    These are `FIGURES_ON_PAGE` and the figures of the user's own datasets.
    """
    names_of_own = own_datasets(results.table["dataset"].unique())
    own = [f"{OWN_PREFIX}{name}" for name in names_of_own]
    declared = [figure_id for figure_id in FIGURES_ON_PAGE if figure_id in FIGURES]
    all_pictures = map_in_processes(partial(_picture, results, column), [*declared, *own])
    return [picture for picture in all_pictures if picture]


def _picture(results: ResultsFolder, column: VerdictColumn, figure_id: str) -> Picture | None:
    """Return a figure in the setting of a column of verdicts; None if it has no results."""
    where = parse_where(column.terms, results.candidates, results.changes)
    request = Request(protocol=column.protocol, where=where)
    drawn = next(drawings(results, [figure_id], request), None)
    if drawn is None or not drawn.panels_with_results:
        return None
    options = [f"--where {term}" for term in column.terms]
    command = " ".join([f"dlmexp plot {figure_id} --protocol {column.protocol}", *options])
    return Picture(
        id=figure_id,
        title=drawn.figure.title,
        caption=drawn.figure.caption,
        notes=drawn.notes,
        source=png_address(drawn.picture),
        commands=[*drawn.commands, results.command(command)],
    )


def page(results: ResultsFolder) -> str:
    """Return the whole report as HTML.

    The template engine escapes all texts from records.
    """
    judged = judge(results)
    claims = judged.by_claim()
    has_records_of_claims = any(verdict.origin.records for verdict in judged.verdicts)
    rows = result_rows(results)
    findings_by_column = {column.label: findings(results, column) for column in judged.columns}
    return _environment().get_template("report.html.j2").render(
        version=__version__,
        overview=overview(results),
        columns=[column.label for column in judged.columns],
        findings=findings_by_column,
        claims=claims if has_records_of_claims else [],
        shown=_clearest(claims),
        summaries=summaries(judged),
        leaderboards=leaderboards(results),
        first_figure=FIGURES_ON_PAGE[0],
        pictures=pictures(results, judged.columns[0]),
        rows=rows.head(MAX_ROWS).to_dict("records"),
        left_out=max(len(rows) - MAX_ROWS, 0),
        metrics=_metrics_with_values(rows),
        failures=failures(results),
        origins=origins(results).to_dict("records"),
        here=results.command,
    )  # fmt: skip


def _environment() -> Environment:
    """Return the template engine, with the functions that the template uses as filters."""
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

    These are the claims with the clearest verdicts in the first column. Of equal verdicts, those
    with the most tests come first.
    """
    verdicts_of_first_column: list[ClaimVerdict] = []
    for judged_claim in claims:
        first_verdict, *_ = judged_claim.by_column.values()
        verdicts_of_first_column.append(first_verdict)
    clearest_first = sorted(verdicts_of_first_column, key=_unclarity)
    return [verdict.claim.number for verdict in clearest_first[:MAX_VERDICTS]]


def _unclarity(verdict: ClaimVerdict) -> tuple[int, int]:
    """Return a sort key: clearest verdicts first, and of equal ones those with most tests."""
    return CLEAREST_FIRST.index(verdict.verdict), -verdict.tally.tests


def _metrics_with_values(rows: pd.DataFrame) -> dict[str, str]:
    """Return the metrics that any row has, with their labels."""
    with_values: dict[str, str] = {}
    for name, label in METRICS.items():
        column = f"test_{name}_mean"
        if column in rows and rows[column].notna().any():
            with_values[name] = label
    return with_values


def number(value: float, digits: int = 4) -> str:
    """Return a number with a few digits, an en dash for NaN, words for an infinite one."""
    if np.isnan(value):
        return "–"
    if np.isinf(value):
        return "not finite"
    return f"{value:.{digits}g}"
