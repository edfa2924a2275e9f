"""Provide what claims are judged by: the rows of one setting as values by size and seed.

`Evidence.fit`, `curve` and `estimator` return such values for a method, as a `MetricLine`.
`Evidence.compare` tests a relation between pairs of them, within a margin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from dlmexp.common.catalogue import family
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.table import rows_for
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import ClaimTest, Origin, Part
from dlmexp.presentation.claims.overlap import split_overlap
from dlmexp.presentation.claims.paired import Comparisons, SizeValues, compare
from dlmexp.presentation.claims.rules import (
    MIN_REPETITIONS,
    TAIL,
    Margin,
    Outcome,
    PValues,
    Relation,
    p_values_of_tests,
)
from dlmexp.presentation.labels import estimator_label, method_label

# Rows with the same values in these columns belong to one line.
LINE_COLUMNS = ["kind", "dataset", "parameterisation", "method", "estimator", "samples"]
NO_SAMPLES = -1.0  # replaces the missing number of samples of a deterministic objective
DLM = ("joint_log_dlm", "fixed_log_dlm")
PARAMETERISATIONS = ("whitened", "unwhitened")
MAX_COMMANDS = 3  # that an `Origin` lists
DEFAULT_BETA = 0.1  # the beta at which the paper compares estimators
# The roles of runs that change one setting, and of runs for timing. Their rows in `Evidence.frame`
# have the role as `kind`.
OTHER_ROLES = ("zero-mean", "ups-lr", "timing")
Values = Float[np.ndarray, "S R"]  # by size and seed of a dataset; NaN where missing
Positions = Int[np.ndarray, " N"]  # positions of rows in `Evidence.frame`


@dataclass(frozen=True, eq=False)  # without `eq`, lines with arrays can be keys of a dict
class MetricLine:
    """One side of a comparison: the values of a method by size and seed. Lower is better.

    Attributes:
        name: The label of the method.
        values: The values; NaN where a repetition is missing or not finite.
        positions: The positions of its rows in `Evidence.frame`; empty for constants and for times,
            which have no rows there.
        lost: The number of repetitions that failed or are not finite.
    """

    name: str
    values: Values
    positions: Positions
    lost: int = 0

    @property
    def was_run(self) -> bool:
        """Whether it has any rows or values. Lines of times have values without positions."""
        return len(self.positions) > 0 or bool(np.isfinite(self.values).any())


Pairs = Sequence[tuple[MetricLine, MetricLine]]  # each is ours and a rival


class Evidence:
    """The rows of one column of verdicts, that is of one setting.

    It is made from the results folder, the selected rows of the tidy table (`table`) and the rows
    of all cells (`candidates`).

    Attributes:
        results: The results folder.
        candidates: The rows of all cells of the setting.
        ends_early: Whether a preset ended runs after few iterations. Such runs tell nothing about
            convergence.
        margin_factor: A factor on all margins. It is 1, except to see which verdicts depend on
            margins.
        frame: The rows that lines are made of. The column `kind` is `nll` or `mse` for fits that
            were selected by this metric, `curve` for learning curves, `gradient` for gradient
            draws, or one of `OTHER_ROLES`.
        sizes: The sorted numbers of training rows of each dataset.
        seeds: The sorted seeds of each dataset.
        tasks: The task of each dataset.
        stands_for: The dataset of the paper that each stand-in represents.
    """

    def __init__(
        self,
        results: ResultsFolder,
        table: pd.DataFrame,
        candidates: pd.DataFrame,
        ends_early: bool = False,
        margin_factor: float = 1.0,
    ):
        self.results = results
        self.candidates = candidates
        self.ends_early = ends_early
        self.margin_factor = margin_factor
        self.frame = _rows_by_kind(table, candidates)
        samples = self.frame["samples"].fillna(NO_SAMPLES)
        lines = self.frame[LINE_COLUMNS].assign(samples=samples)
        # The positions of the rows of each line, by its values in `LINE_COLUMNS`.
        self._positions: Any = lines.groupby(LINE_COLUMNS, sort=False, observed=True).indices
        self._columns: dict[str, np.ndarray] = {}
        self._overlaps: dict[str, float] = {}
        self.sizes = _unique_by_dataset(candidates, "n")
        self.seeds = _unique_by_dataset(candidates, "seed")
        datasets = candidates.drop_duplicates("dataset").set_index("dataset")
        self.tasks = _texts_by_name(datasets["task"])
        self.stands_for = _texts_by_name(datasets["stands_for"].dropna())

    def datasets_and_q(self, *datasets: str, kind: str = "nll") -> list[tuple[str, str]]:
        """Return the datasets that a claim names and their stand-ins, with parameterisations of q.

        Stand-ins are those that have records. The parameterisations are those that were run, or
        `whitened` where none was.

        Args:
            datasets: The datasets that the claim names.
            kind: The kind of rows in `frame` that the claim is about.
        """
        pairs = []
        for name in (*datasets, *self._stand_ins(datasets)):
            pairs += [(name, q) for q in self._parameterisations(name, kind)]
        return pairs

    def _stand_ins(self, datasets: Sequence[str]) -> list[str]:
        """Return the stand-ins with records for these datasets of the paper, or for their families.

        A stand-in for a subset, such as `peds1_dir2`, serves for all subsets of its family.
        """
        families = {family(name) for name in datasets}
        stand_ins: list[str] = []
        for stand_in, represented in sorted(self.stands_for.items()):
            if family(represented) in families:
                stand_ins.append(stand_in)
        return stand_ins

    def _parameterisations(self, dataset: str, kind: str) -> list[str]:
        """Return the parameterisations of q that a dataset was run in, for rows of a kind.

        Return `whitened` where there are no such rows.
        """
        with_rows: set[str] = set()
        for line_kind, line_dataset, q, *_ in self._positions:  # see LINE_COLUMNS
            if (line_kind, line_dataset) == (kind, dataset):
                with_rows.add(q)
        return [q for q in PARAMETERISATIONS if q in with_rows] or ["whitened"]

    def arrays(self, row: int) -> dict[str, np.ndarray]:
        """Return the arrays of the record of a row of `frame`."""
        return self.results.arrays(str(self.column("key")[row]))

    def column(self, name: str) -> np.ndarray:
        """Return a column of `frame`; all NaN if the table does not have it."""
        if name not in self._columns:
            if name in self.frame:
                self._columns[name] = self.frame[name].to_numpy()
            else:
                self._columns[name] = np.full(len(self.frame), np.nan)
        return self._columns[name]

    def origin(self, *positions: Positions) -> Origin:
        """Return which commands and commits computed the rows at these positions."""
        rows = np.concatenate(positions)
        commands = self.frame["command"].array.take(rows)
        commits = self.frame["commit"].array.take(rows)
        return origin_of(commands, commits)

    def at(
        self, kind: str, dataset: str, q: str, method: str, estimator: str, samples: float | None
    ) -> Positions:
        """Return the positions in `frame` of the rows of a line.

        Args:
            kind: The kind of the rows (`frame`).
            dataset: The dataset.
            q: The parameterisation of q.
            method: The method, a name in `conf/method`.
            estimator: The estimator of the gradient.
            samples: Its number of samples; None if it takes none.
        """
        samples_key = NO_SAMPLES if samples is None else float(samples)
        key = (kind, dataset, q, method, estimator, samples_key)
        return self._positions.get(key, np.array([], dtype=int))

    def line(self, name: str, dataset: str, at: Positions, values: np.ndarray) -> MetricLine:
        """Return a line with the values of some rows, arranged by size and seed.

        Args:
            name: The name of the line.
            dataset: The dataset of the rows.
            at: The positions of the rows (`Evidence.at`).
            values: The values of all rows of `frame`, such as a `column`.
        """
        values_of_line = values[at].astype(float)
        is_infinite = np.isinf(values_of_line)
        has_failed = self.column("status")[at] == "failed"
        finite = np.where(is_infinite, np.nan, values_of_line)
        n = self.column("n")[at]
        seed = self.column("seed")[at]
        lost = int(np.count_nonzero(has_failed | is_infinite))
        return MetricLine(name, self.by_size_and_seed(dataset, n, seed, finite), at, lost)

    def by_size_and_seed(
        self, dataset: str, n: np.ndarray, seed: np.ndarray, values_of_rows: np.ndarray
    ) -> Values:
        """Return the values of rows of a dataset as a matrix by size and seed; NaN without a row.

        Of several rows with the same size and seed, the last one counts.
        """
        sizes = self.sizes.get(dataset, np.array([]))
        seeds = self.seeds.get(dataset, np.array([]))
        values = np.full((len(sizes), len(seeds)), np.nan)
        values[np.searchsorted(sizes, n), np.searchsorted(seeds, seed)] = values_of_rows
        return values

    def fit(
        self, dataset: str, method: str, metric: str, q: str = "whitened", value: str = ""
    ) -> MetricLine:
        """Return the values of a method with its beta selected on validation rows.

        On counts, the values of DLM are those of training with bMC-10, as in the paper.

        Args:
            dataset: The dataset.
            method: The method, a name in `conf/method`.
            metric: The metric. Beta is selected by MSE for `mse`, and by NLL for all others.
            q: The parameterisation of q.
            value: The column of the values; '' means the test metric.
        """
        kind = "mse" if metric == "mse" else "nll"
        if self.tasks.get(dataset) == "count" and method in DLM:
            rows = self.at(kind, dataset, q, method, estimator="bmc", samples=10)
        else:
            rows = self.at(kind, dataset, q, method, estimator="exact", samples=None)
        values = self.column(value or f"test_{metric}")
        return self.line(method_label(method), dataset, rows, values)

    def curve(
        self,
        dataset: str,
        method: str,
        beta: float,
        q: str = "whitened",
        estimator: str = "exact",
        samples: int | None = None,
        name: str = "",
        value: str = "test_nll",
    ) -> MetricLine:
        """Return the values of a method at the end of its learning curves at one beta.

        Args:
            dataset: The dataset.
            method: The method, a name in `conf/method`.
            beta: The beta.
            q: The parameterisation of q.
            estimator: The estimator of the gradient.
            samples: Its number of samples; None if it takes none.
            name: The name of the line; '' means the method with its beta.
            value: The column of the values.
        """
        rows_at_all_betas = self.at("curve", dataset, q, method, estimator, samples)
        betas = self.column("beta")[rows_at_all_betas].astype(float)
        rows = rows_at_all_betas[np.isclose(betas, beta)]
        label = name or f"{method_label(method)}, β={beta:g}"
        return self.line(label, dataset, rows, self.column(value))

    def estimator(
        self,
        dataset: str,
        q: str,
        estimator: str,
        samples: int | None = None,
        beta: float = DEFAULT_BETA,
    ) -> MetricLine:
        """Return the NLL of joint DLM with a gradient estimator, at the end of learning curves."""
        label = estimator_label(estimator, samples)
        if beta != DEFAULT_BETA:
            label += f", β={beta:g}"
        return self.curve(dataset, "joint_log_dlm", beta, q, estimator, samples, name=label)

    def margin(self, dataset: str, metric: str, q: str = "whitened") -> Margin:
        """Return the smallest difference that counts, by size.

        It is a share of what the ELBO explains, that is of the metric of the trivial predictor
        minus that of the ELBO (`rules.EXPLAINED_SHARE`). If 0 is the best value of the metric, it
        is also at most a share of the ELBO's metric (`rules.METRIC_SHARE`). It is NaN where the
        ELBO was not run at beta = 1, or explains nothing.
        """
        elbo = self._values_of_elbo(dataset, metric, q, f"test_{metric}")
        trivial = self._values_of_elbo(dataset, metric, q, f"trivial_test_{metric}")
        explained = _mean_over_seeds(trivial - elbo)
        share = rules.EXPLAINED_SHARE * explained
        margin = np.where(explained > 0, share, np.nan)
        if (self.tasks.get(dataset), metric) == rules.DENSITY:
            return margin
        largest = rules.METRIC_SHARE * _mean_over_seeds(elbo)
        return np.minimum(margin, largest)

    def _values_of_elbo(self, dataset: str, metric: str, q: str, value: str) -> Values:
        """Return a column of the ELBO at beta = 1.

        The values are those of fits. Where there is no fit, they are those at the end of learning
        curves.
        """
        values = self.fit(dataset, "elbo", metric, q, value).values
        for method in ("beta_elbo", "elbo"):
            values_of_curves = self.curve(dataset, method, 1.0, q, value=value).values
            values = np.where(np.isnan(values), values_of_curves, values)
        return values

    def constant(self, name: str, line: MetricLine, value: float = 0.0) -> MetricLine:
        """Return a line with the same value in every repetition that another line has."""
        values = np.where(np.isnan(line.values), np.nan, value)
        no_rows = line.positions[:0]
        return MetricLine(name, values, no_rows)

    def compare(
        self,
        statement: str,
        dataset: str,
        q: str | None,
        pairs: Pairs,
        relation: Relation,
        within: str | float,
        overlap: float | None = None,
    ) -> Part:
        """Test a relation between ours and the rival of every pair, at each size.

        Args:
            statement: The statement, in words.
            dataset: The dataset of all lines.
            q: The parameterisation of q of all lines.
            pairs: Pairs of ours and a rival.
            relation: The relation of ours to all rivals, such as `BETTER`.
            within: The margin as a number, or the metric that it is computed from (`margin`).
            overlap: The number of test rows of a repetition, divided by that of its other rows;
                None means that of the dataset's split.
        """
        lines = _distinct_lines(pairs)
        if not any(line.was_run for line in lines):
            return Part(statement, dataset, q)
        positions = [line.positions for line in lines]
        part = Part(statement, dataset, q, origin=self.origin(*positions))
        ours = np.stack([line.values for line, _ in pairs])
        rivals = np.stack([line.values for _, line in pairs])
        comparisons = compare(ours, rivals)
        if not comparisons.repetitions.any():
            return part

        margin = self._margin_by_size(dataset, q, within)
        if overlap is None:
            overlap = self._overlap(dataset)
        corrected = comparisons.corrected(overlap)
        p_values = p_values_of_tests(corrected, margin, relation)
        part.tests = _tests(self.sizes[dataset], pairs, corrected, margin, relation, p_values)
        part.repetitions = min(test.repetitions for test in part.tests)
        lost = sum(line.lost for line in lines)
        if lost:
            part.reason = f"{lost} failed or not finite, left out"
        return part

    def _margin_by_size(self, dataset: str, q: str | None, within: str | float) -> Margin:
        """Return the margin by size, from a metric or a number, times `margin_factor`."""
        if isinstance(within, str):
            margin = self.margin(dataset, within, q or PARAMETERISATIONS[0])
        else:
            margin = np.full(len(self.sizes[dataset]), within)
        return self.margin_factor * margin

    def _overlap(self, dataset: str) -> float:
        """Return the number of test rows of a dataset's split, divided by that of other rows."""
        if dataset not in self._overlaps:
            largest = int(self.sizes[dataset][-1])
            self._overlaps[dataset] = split_overlap(dataset, self.tasks[dataset], largest)
        return self._overlaps[dataset]


def _rows_by_kind(table: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that lines are made of, with the column `kind` (see `Evidence.frame`)."""
    frames = []
    fits = table[table["role"] == "fit"]
    for metric in ("nll", "mse"):
        selected = rows_for(fits, metric)
        frames.append(selected.assign(kind=metric))
    for role in ("curve", "gradient", *OTHER_ROLES):
        of_role = candidates[candidates["role"] == role]
        distinct = of_role.drop_duplicates(["key", "method"])
        frames.append(distinct.assign(kind=role))
    with_rows = [frame for frame in frames if len(frame)]
    if not with_rows:
        return table.assign(kind="")
    return pd.concat(with_rows, ignore_index=True)


def _texts_by_name(column: pd.Series) -> dict[str, str]:
    """Return a column as a mapping from the texts of its index to the texts of its values."""
    return {str(name): str(value) for name, value in column.items()}


def _unique_by_dataset(candidates: pd.DataFrame, column: str) -> dict[str, np.ndarray]:
    """Return the sorted distinct values of a column, by dataset."""
    distinct = candidates[["dataset", column]].drop_duplicates()
    groups = distinct.groupby("dataset", observed=True)
    return {str(name): np.unique(rows[column]) for name, rows in groups}


def _distinct_lines(pairs: Pairs) -> list[MetricLine]:
    """Return the lines of all pairs, each once: several pairs may share a line."""
    lines: dict[MetricLine, None] = {}  # an ordered set
    for ours, rival in pairs:
        lines[ours] = None
        lines[rival] = None
    return list(lines)


def _mean_over_seeds(values: Values) -> SizeValues:
    """Return the mean of the finite values, by size; NaN where no value is finite."""
    finite = np.isfinite(values)
    sums = np.where(finite, values, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return sums / finite.sum(axis=1)


def _tests(
    sizes: np.ndarray,
    pairs: Pairs,
    comparisons: Comparisons,
    margin: Margin,
    relation: Relation,
    p_values: PValues,
) -> list[ClaimTest]:
    """Return a test for each size that has any repetitions, without outcomes."""
    half_width = comparisons.half_width(TAIL)
    nearest_pairs = relation.nearest(comparisons)
    tests = []
    for size in np.flatnonzero(comparisons.repetitions.any(axis=0)).tolist():
        nearest = nearest_pairs[size]
        ours, rival = pairs[nearest]
        position = (nearest, size)  # in the arrays [K, S] of `Comparisons`
        difference = float(comparisons.difference[position])
        test = ClaimTest(
            n=int(sizes[size]),
            direction=relation.words,
            ours_name=ours.name,
            rival_name=rival.name,
            rivals=len(pairs),
            ours=float(comparisons.ours[position]),
            rival=float(comparisons.rival[position]),
            difference=difference,
            low=difference - float(half_width[position]),
            high=difference + float(half_width[position]),
            margin=float(margin[size]),
            effect=float(comparisons.effect[position]),
            repetitions=int(comparisons.repetitions[position]),
            won=int(comparisons.won[position]),
            median=bool(comparisons.by_median[position]),
            p_values=_p_values_at(p_values, size),
            reason=_reason(pairs, comparisons, margin, size),
        )
        tests.append(test)
    return tests


def _p_values_at(p_values: PValues, size: int) -> dict[Outcome, float]:
    """Return the p-values at a size, of the outcomes that are tested for."""
    by_outcome = {
        Outcome.SUPPORTED: p_values.supported[size],
        Outcome.CONTRADICTED: p_values.contradicted[size],
        Outcome.NO_DIFFERENCE: p_values.no_difference[size],
    }
    return {outcome: float(p) for outcome, p in by_outcome.items() if np.isfinite(p)}


def _reason(pairs: Pairs, comparisons: Comparisons, margin: Margin, size: int) -> str:
    """Return what a test lacks at a size; '' if it lacks nothing."""
    repetitions = comparisons.repetitions[:, size]
    if not np.isfinite(margin[size]):
        return "no margin: ELBO at β = 1 was not run, or explains nothing"
    if repetitions.max() < MIN_REPETITIONS:
        return f"repetitions: {repetitions.max()} of the {MIN_REPETITIONS} that a test needs"
    names: list[str] = []
    for (_, rival), count in zip(pairs, repetitions, strict=True):
        if count < MIN_REPETITIONS:
            names.append(rival.name)
    return f"too few repetitions of {', '.join(names)}" if names else ""


def origin_of(commands: Any, commits: Any) -> Origin:
    """Return which commands and commits computed rows, from the columns with these texts."""
    return Origin(
        records=len(commits),
        commands=_by_frequency(commands)[:MAX_COMMANDS],
        commits=sorted(_by_frequency(commits)),
    )


def _by_frequency(texts: Any) -> list[str]:
    """Return the distinct texts of a column, the most frequent first."""
    categorical = pd.Categorical(texts)
    categories = categorical.categories
    # The code of a missing text is -1. With 1 added, it falls into the first bin, which is dropped.
    counts = np.bincount(categorical.codes + 1, minlength=len(categories) + 1)[1:]
    most_frequent_first = np.argsort(-counts, kind="stable")
    present = most_frequent_first[: np.count_nonzero(counts)]  # counts of 0 come last
    return [str(categories[position]) for position in present]
