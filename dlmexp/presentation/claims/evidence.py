"""What claims are judged by: the rows of one setting, as values by size and seed, and margins."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
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

# Rows that agree in these are of one line.
LINE = ["kind", "dataset", "parameterisation", "method", "estimator", "samples"]
NO_SAMPLES = -1.0  # stands for the missing number of samples of a deterministic objective
DLM = ("joint_log_dlm", "fixed_log_dlm")
PARAMETERISATIONS = ("whitened", "unwhitened")
MOST_COMMANDS = 3
DEFAULT_BETA = 0.1  # of learning curves by estimator
# Roles of runs with one more setting, and of runs for timing.
OTHER_ROLES = ("zero-mean", "ups-lr", "timing")
Values = Float[np.ndarray, "S R"]  # by size and seed of a dataset; NaN: missing
Positions = Int[np.ndarray, " N"]  # of rows in `Evidence.frame`


@dataclass(frozen=True, eq=False)
class MetricLine:
    """One side of a comparison: values of a method along sizes and seeds, lower being better.

    Attributes:
        name: The method, as figures write it.
        values: The values; NaN where a repetition is missing or not finite.
        positions: Where its rows are in the evidence.
        lost: Number of repetitions that failed or are not finite.
    """

    name: str
    values: Values
    positions: Positions
    lost: int = 0


Pairs = Sequence[tuple[MetricLine, MetricLine]]  # ours and a rival


class Evidence:
    """The rows for one column of verdicts: a protocol with its own values, or a changed setting.

    Attributes:
        results: The results folder.
        candidates: The rows of all cells of the setting.
        capped: A preset ended runs after few iterations, which says nothing about convergence.
        margins: Factor on all margins, 1 but to see how much depends on them.
        frame: The rows that lines are made of. Their `kind` is `nll` or `mse` for fits selected by
            that metric, `curve` for learning curves, `gradient` for draws of gradients, and one of
            `OTHER_ROLES`.
        sizes: Numbers of training rows, by dataset.
        seeds: Seeds, by dataset.
        tasks: The task, by dataset.
        stands_for: The paper's dataset that a stand-in replaces, by stand-in.
    """

    def __init__(
        self,
        results: ResultsFolder,
        table: pd.DataFrame,
        candidates: pd.DataFrame,
        capped: bool = False,
        margins: float = 1.0,
    ):
        self.results = results
        self.candidates = candidates
        self.capped = capped
        self.margins = margins
        self.frame = _rows_by_kind(table, candidates)
        samples = self.frame["samples"].fillna(NO_SAMPLES)
        lines = self.frame[LINE].assign(samples=samples)
        # The positions of the rows of each line, by its values of `LINE`.
        self._positions: Any = lines.groupby(LINE, sort=False, observed=True).indices
        self._columns: dict[str, np.ndarray] = {}
        self._overlaps: dict[str, float] = {}
        self.sizes = _unique_by_dataset(candidates, "n")
        self.seeds = _unique_by_dataset(candidates, "seed")
        datasets = candidates.drop_duplicates("dataset").set_index("dataset")
        self.tasks = _texts_by_name(datasets["task"])
        self.stands_for = _texts_by_name(datasets["stands_for"].dropna())

    def datasets_and_q(self, *datasets: str, kind: str = "nll") -> list[tuple[str, str]]:
        """Return the datasets that a claim names, and their stand-ins, with parameterisations of q.

        Stand-ins are those that have records. The parameterisations are those that were run, or
        `whitened` where none was.
        """
        pairs = []
        for name in (*datasets, *self._stand_ins(datasets)):
            pairs += [(name, q) for q in self._parameterisations(name, kind)]
        return pairs

    def _stand_ins(self, datasets: Sequence[str]) -> list[str]:
        """Return the stand-ins with records for any of these datasets of the paper, or kin of it.

        A stand-in for a subset, such as `peds1_dir2`, serves for all of its family.
        """
        families = {family(name) for name in datasets}
        stand_ins = sorted(self.stands_for.items())
        return [name for name, paper in stand_ins if family(paper) in families]

    def _parameterisations(self, dataset: str, kind: str) -> list[str]:
        """Return the parameterisations of q of a dataset's lines of a kind; else `whitened`."""
        run = {line[2] for line in self._positions if line[:2] == (kind, dataset)}
        return [q for q in PARAMETERISATIONS if q in run] or ["whitened"]

    def arrays(self, row: int) -> dict[str, np.ndarray]:
        """Return the arrays of the record of a row of `frame`."""
        return self.results.arrays(str(self.column("key")[row]))

    def column(self, name: str) -> np.ndarray:
        """Return a column of `frame`; NaN everywhere where the table does not have it."""
        if name not in self._columns:
            if name in self.frame:
                self._columns[name] = self.frame[name].to_numpy()
            else:
                self._columns[name] = np.full(len(self.frame), np.nan)
        return self._columns[name]

    def origin(self, *positions: Positions) -> Origin:
        """Return how the rows at these positions came to be."""
        rows = np.concatenate(positions)
        return origin_of(
            self.frame["command"].array.take(rows), self.frame["commit"].array.take(rows)
        )

    def at(
        self, kind: str, dataset: str, q: str, method: str, estimator: str, samples: float | None
    ) -> Positions:
        """Return the positions of the rows of a line."""
        samples_key = NO_SAMPLES if samples is None else float(samples)
        key = (kind, dataset, q, method, estimator, samples_key)
        return self._positions.get(key, np.array([], dtype=int))

    def line(self, name: str, dataset: str, at: Positions, values: np.ndarray) -> MetricLine:
        """Arrange values of rows by size and seed of their dataset.

        Args:
            name: The name of the line.
            dataset: The dataset of the rows.
            at: Positions of the rows (`Evidence.at`).
            values: An array as long as `frame`, such as a `column`.
        """
        value_of_rows = values[at].astype(float)
        infinite = np.isinf(value_of_rows)
        failed = self.column("status")[at] == "failed"
        finite = np.where(infinite, np.nan, value_of_rows)
        arranged = self.arranged(dataset, self.column("n")[at], self.column("seed")[at], finite)
        lost = int(np.count_nonzero(failed | infinite))
        return MetricLine(name, arranged, at, lost)

    def arranged(
        self, dataset: str, n: np.ndarray, seed: np.ndarray, value_of_rows: np.ndarray
    ) -> Values:
        """Return values of rows of a dataset by size and seed."""
        sizes = self.sizes.get(dataset, np.array([]))
        seeds = self.seeds.get(dataset, np.array([]))
        values = np.full((len(sizes), len(seeds)), np.nan)
        values[np.searchsorted(sizes, n), np.searchsorted(seeds, seed)] = value_of_rows
        return values

    def fit(
        self, dataset: str, method: str, metric: str, q: str = "whitened", value: str = ""
    ) -> MetricLine:
        """Return a method with its beta selected on validation, at every size and seed.

        DLM on counts is trained with bMC-10, as in the paper.

        Args:
            dataset: Name of the dataset.
            method: Name in `conf/method`.
            metric: What beta is selected by: MSE for `mse`, NLL for all others.
            q: Parameterisation of q.
            value: The column of the values; the test metric, if left out.
        """
        kind = "mse" if metric == "mse" else "nll"
        if self.tasks.get(dataset) == "count" and method in DLM:
            at = self.at(kind, dataset, q, method, "bmc", 10)
        else:
            at = self.at(kind, dataset, q, method, "exact", None)
        values = self.column(value or f"test_{metric}")
        return self.line(method_label(method), dataset, at, values)

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
        """Return the end of learning curves at one beta."""
        at = self.at("curve", dataset, q, method, estimator, samples)
        betas = self.column("beta")[at].astype(float)
        at = at[np.isclose(betas, beta)]
        label = name or f"{method_label(method)}, β={beta:g}"
        return self.line(label, dataset, at, self.column(value))

    def estimator(
        self,
        dataset: str,
        q: str,
        estimator: str,
        samples: int | None = None,
        beta: float = DEFAULT_BETA,
    ) -> MetricLine:
        """Return the end of joint DLM's learning curves at a beta with a gradient estimator."""
        label = estimator_label(estimator, samples)
        if beta != DEFAULT_BETA:
            label += f", β={beta:g}"
        return self.curve(dataset, "joint_log_dlm", beta, q, estimator, samples, label)

    def margin(self, dataset: str, metric: str, q: str = "whitened") -> Margin:
        """Return the smallest difference that counts, by size.

        It is 5 % of what ELBO explains, and at most 10 % of ELBO's metric where 0 is its best
        value. It is NaN where ELBO was not run at beta = 1, or explains nothing.
        """
        elbo = self._elbo(dataset, metric, q, f"test_{metric}")
        trivial = self._elbo(dataset, metric, q, f"trivial_test_{metric}")
        explained = _mean_over_seeds(trivial - elbo)
        share = rules.EXPLAINED_SHARE * explained
        margin = np.where(explained > 0, share, np.nan)
        if (self.tasks.get(dataset), metric) == rules.DENSITY:
            return margin
        largest = rules.METRIC_SHARE * _mean_over_seeds(elbo)
        return np.minimum(margin, largest)

    def _elbo(self, dataset: str, metric: str, q: str, value: str) -> Values:
        """Return a value of ELBO at beta = 1: of fits, and else at the end of learning curves."""
        values = self.fit(dataset, "elbo", metric, q, value).values
        for method in ("beta_elbo", "elbo"):
            at_end = self.curve(dataset, method, 1.0, q, value=value).values
            values = np.where(np.isnan(values), at_end, values)
        return values

    def constant(self, name: str, line: MetricLine, value: float = 0.0) -> MetricLine:
        """Return a line that has one value wherever another one has any."""
        values = np.where(np.isnan(line.values), np.nan, value)
        return MetricLine(name, values, line.positions[:0])

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
            statement: What is said, for people.
            dataset: The dataset of all lines.
            q: Their parameterisation of q.
            pairs: Ours and a rival each.
            relation: What is said of them, such as `BETTER`.
            within: The margin, or the metric that it is computed from.
            overlap: Test rows over other rows of a repetition; that of the dataset, if left out.
        """
        lines = list(dict.fromkeys(chain.from_iterable(pairs)))
        positions = [line.positions for line in lines]
        part = Part(statement, dataset, q, origin=self.origin(*positions))
        ours = np.stack([line.values for line, _ in pairs])
        rivals = np.stack([line.values for _, line in pairs])
        comparisons = compare(ours, rivals)
        if not comparisons.repetitions.any():
            return part

        margin = self._margin_of_tests(dataset, q, within)
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

    def _margin_of_tests(self, dataset: str, q: str | None, within: str | float) -> Margin:
        """Return the margin by size, from a metric or a number, with the factor on all margins."""
        if isinstance(within, str):
            margin = self.margin(dataset, within, q or PARAMETERISATIONS[0])
        else:
            margin = np.full(len(self.sizes[dataset]), within)
        return self.margins * margin

    def _overlap(self, dataset: str) -> float:
        """Return the number of test rows of a dataset's repetitions over that of other rows."""
        if dataset not in self._overlaps:
            largest = int(self.sizes[dataset][-1])
            self._overlaps[dataset] = split_overlap(dataset, self.tasks[dataset], largest)
        return self._overlaps[dataset]


def _rows_by_kind(table: pd.DataFrame, candidates: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that lines are made of, with their `kind` (see `Evidence.frame`)."""
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
    """Return a column as texts by those of its index."""
    return {str(name): str(value) for name, value in column.items()}


def _unique_by_dataset(candidates: pd.DataFrame, column: str) -> dict[str, np.ndarray]:
    """Return the sorted distinct values of a column, by dataset."""
    distinct = candidates[["dataset", column]].drop_duplicates()
    groups = distinct.groupby("dataset", observed=True)
    return {str(name): np.unique(rows[column]) for name, rows in groups}


def _mean_over_seeds(values: Values) -> SizeValues:
    """Return the mean of the finite values, by size; NaN where there is none."""
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
        at = (nearest, size)
        difference = float(comparisons.difference[at])
        tests.append(
            ClaimTest(
                n=int(sizes[size]),
                direction=relation.words,
                ours_name=ours.name,
                rival_name=rival.name,
                rivals=len(pairs),
                ours=float(comparisons.ours[at]),
                rival=float(comparisons.rival[at]),
                difference=difference,
                low=difference - float(half_width[at]),
                high=difference + float(half_width[at]),
                margin=float(margin[size]),
                effect=float(comparisons.effect[at]),
                repetitions=int(comparisons.repetitions[at]),
                won=int(comparisons.won[at]),
                median=bool(comparisons.median[at]),
                p_values=_asked(p_values, size),
                reason=_reason(pairs, comparisons, margin, size),
            )
        )
    return tests


def _asked(p_values: PValues, size: int) -> dict[Outcome, float]:
    """Return the p-values of the outcomes that are asked for at a size."""
    by_outcome = {
        Outcome.SUPPORTED: p_values.supported[size],
        Outcome.CONTRADICTED: p_values.contradicted[size],
        Outcome.NO_DIFFERENCE: p_values.no_difference[size],
    }
    return {outcome: float(p) for outcome, p in by_outcome.items() if np.isfinite(p)}


def _reason(pairs: Pairs, comparisons: Comparisons, margin: Margin, size: int) -> str:
    """Return what a test lacks at a size; empty where it lacks nothing."""
    repetitions = comparisons.repetitions[:, size]
    if not np.isfinite(margin[size]):
        return "no margin: ELBO at β = 1 was not run, or explains nothing"
    if repetitions.max() < MIN_REPETITIONS:
        return f"repetitions: {repetitions.max()} of the {MIN_REPETITIONS} that a test needs"
    few = np.flatnonzero(repetitions < MIN_REPETITIONS)
    if not len(few):
        return ""
    rivals = [rival.name for _, rival in pairs]
    return f"too few repetitions of {', '.join(rivals[k] for k in few)}"


def origin_of(commands: Any, commits: Any) -> Origin:
    """Return how rows came to be, from the column of their commands and that of their commits."""
    return Origin(
        records=len(commits),
        commands=_by_frequency(commands)[:MOST_COMMANDS],
        commits=sorted(_by_frequency(commits)),
    )


def _by_frequency(texts: Any) -> list[str]:
    """Return the distinct texts of a column, the most frequent first."""
    categorical = pd.Categorical(texts)
    categories = categorical.categories
    # The code of a missing text is -1: with 1 added, it falls into the first bin, which is dropped.
    counts = np.bincount(categorical.codes + 1, minlength=len(categories) + 1)[1:]
    order = np.argsort(-counts, kind="stable")
    present = order[: np.count_nonzero(counts)]  # those that do not occur come last
    return [str(categories[position]) for position in present]
