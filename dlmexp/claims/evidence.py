"""What claims are judged by: the rows of one setting, as lines of values by size and seed, and their margins."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from dlmexp.claims.claim import Part
from dlmexp.claims.rules import Margin, Rule, State, Verdict, by_size, states
from dlmexp.claims.statistics import compare
from dlmexp.claims.thresholds import DENSITY, EXPLAINED_SHARE, METRIC_SHARE, MIN_REPETITIONS, overlap
from dlmexp.labels import estimator_label, method_label

LINE = ["dataset", "parameterisation", "method", "estimator", "samples"]
DLM = ("joint_log_dlm", "fixed_log_dlm")
Values = Float[np.ndarray, "S R"]  # by size and seed of a dataset; NaN where there is none


COLUMNS = [
    *LINE, "stands_for", "task", "n", "size", "seed", "role", "protocol", "changes", "evaluate", "data", "split",
    "group", "missing", "status", "key", "beta", "objective", "variant", "form", "kernel", "M", "lr", "minibatch",
    "window", "max_iterations", "epochs", "sampler", "converged", "seconds", "iterations", "alone", "acceptance",
    "bias", "bias_quadrature", "validation_nll", "test_nll", "trivial_test_nll", "device", "host",
    "time", "commit", "command",
]  # fmt: skip
"""The columns of candidates that claims read."""
MAYBE = ("converged", "alone", "epochs")  # columns that hold True, False, numbers or nothing


class ResultsTable(Protocol):
    """The part of `dlmexp.records.results.Results` that claims read."""

    table: pd.DataFrame
    candidates: pd.DataFrame

    def arrays(self, key: str) -> dict[str, np.ndarray]: ...
    def command(self, command: str) -> str: ...


def coded(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with texts as categories: rows with few distinct texts are taken and grouped ten times as fast."""
    texts = [name for name in frame if frame[name].dtype in ("str", "object") and name not in MAYBE]
    return frame.astype(dict.fromkeys(texts, "category"))


class Rows:
    """Rows of the tidy table with the positions of each line, and their columns as arrays."""

    def __init__(self, frame: pd.DataFrame):
        self.frame = frame.reset_index(drop=True)
        self._columns: dict[str, np.ndarray] = {}
        self._codes: dict[str, tuple[np.ndarray, Sequence[str]]] = {}

    @cached_property
    def lines(self) -> dict[Any, np.ndarray]:
        """Dataset, coordinates of q, method, estimator, samples (-1: none) -> positions."""
        lines = self.frame[LINE].assign(samples=self.frame["samples"].fillna(-1))
        return lines.groupby(LINE, sort=False, observed=True).indices if len(lines) else {}

    def column(self, name: str) -> np.ndarray:
        """A column as an array; NaN everywhere where the table does not have it."""
        if name not in self._columns:
            known = name in self.frame
            self._columns[name] = self.frame[name].to_numpy() if known else np.full(len(self.frame), np.nan)
        return self._columns[name]

    def codes(self, name: str) -> tuple[Int[np.ndarray, " N"], Sequence[str]]:
        """A column of texts as numbers (-1: none), and what they stand for."""
        if name not in self._codes:
            codes, texts = pd.factorize(self.frame[name])
            self._codes[name] = codes, list(texts)
        return self._codes[name]

    def at(self, dataset: str, q: str, method: str, estimator: str, samples: float | None) -> Int[np.ndarray, " N"]:
        """Positions of the rows of a line."""
        key = (dataset, q, method, estimator, -1.0 if samples is None else float(samples))
        return self.lines.get(key, np.array([], dtype=int))


@dataclass(frozen=True)
class Line:
    """One side of a comparison, lower being better, with the rows that it comes from."""

    name: str
    values: Values
    rows: Rows
    at: Int[np.ndarray, " N"]
    lost: int = 0  # repetitions that failed or are not finite


class Evidence:
    """The rows of one column of verdicts: one protocol with its own values, or one changed setting."""

    def __init__(
        self, results: ResultsTable, table: pd.DataFrame, candidates: pd.DataFrame, alone: Callable[[], set[str]],
        capped: bool = False,
    ):  # fmt: skip
        self.results = results
        self.candidates = candidates
        self.alone = alone  # keys of the timed runs, of all settings, that had their device to themselves
        self.capped = capped  # by a preset: few iterations, which say nothing about convergence
        fits = table[table["role"] == "fit"]
        self.selected = {by: Rows(_selected_by(fits, by)) for by in ("nll", "mse")}
        for role in ("curve", "gradient"):
            setattr(self, f"{role}s", Rows(candidates[candidates["role"] == role].drop_duplicates(["key", "method"])))
        place = candidates.drop_duplicates(["dataset", "n", "seed"])
        by_dataset = list(place.groupby("dataset", observed=True))
        self.sizes: dict[str, np.ndarray] = {str(name): np.unique(some["n"]) for name, some in by_dataset}
        self.seeds: dict[str, np.ndarray] = {str(name): np.unique(some["seed"]) for name, some in by_dataset}
        facts = candidates.drop_duplicates("dataset").set_index("dataset")
        self.tasks: dict[str, str] = facts["task"].to_dict()
        self.stands_for: dict[str, str] = facts["stands_for"].dropna().to_dict()

    curves: Rows
    gradients: Rows

    def places(self, *datasets: str, role: str = "fit") -> list[tuple[str, str]]:
        """The paper's datasets named, and the stand-ins for them that have records, each with the coordinates of q that
        were run (whitened where none were)."""
        wanted = {family(name) for name in datasets}
        names = [*datasets, *(name for name, of in sorted(self.stands_for.items()) if family(of) in wanted)]
        rows = {"fit": self.selected["nll"], "curve": self.curves, "gradient": self.gradients}[role]
        run = {key[:2] for key in rows.lines}
        both = {name: [q for q in ("whitened", "unwhitened") if (name, q) in run] for name in names}
        return [(name, q) for name in names for q in both[name] or ["whitened"]]

    def fit(self, dataset: str, method: str, metric: str, q: str = "whitened", value: str = "") -> Line:
        """A method with its beta selected on validation, at every size and seed: its test metric, or another `value`.
        DLM on counts is trained with bMC-10, as in the paper."""
        rows = self.selected["mse" if metric == "mse" else "nll"]
        sampled = self.tasks.get(dataset) == "count" and method in DLM
        at = rows.at(dataset, q, method, *(("bmc", 10) if sampled else ("exact", None)))
        return self._line(method_label(method), dataset, rows, at, value or f"test_{metric}")

    def curve(
        self, dataset: str, method: str, beta: float, q: str = "whitened", estimator: str = "exact",
        samples: int | None = None, name: str = "", value: str = "test_nll",
    ) -> Line:  # fmt: skip
        """The end of learning curves at one beta."""
        at = self.curves.at(dataset, q, method, estimator, samples)
        at = at[np.isclose(self.curves.column("beta")[at].astype(float), beta)]
        return self._line(name or f"{method_label(method)}, β={beta:g}", dataset, self.curves, at, value)

    def estimator(self, dataset: str, q: str, estimator: str, samples: int | None = None) -> Line:
        """The end of joint DLM's learning curves at beta = 0.1 with one gradient estimator."""
        label = estimator_label(estimator, samples)
        return self.curve(dataset, "joint_log_dlm", 0.1, q, estimator, samples, label)

    def _line(self, name: str, dataset: str, rows: Rows, at: np.ndarray, column: str) -> Line:
        values = rows.column(column)[at].astype(float)
        lost = (rows.column("status")[at] == "failed") | np.isinf(values)
        return Line(name, self.grid(dataset, rows, at, rows.column(column)), rows, at, int(lost.sum()))

    def grid(self, dataset: str, rows: Rows, at: np.ndarray, values: np.ndarray) -> Values:
        """Values of rows by size and seed of their dataset; NaN where not finite."""
        sizes, seeds = self.sizes.get(dataset, np.array([])), self.seeds.get(dataset, np.array([]))
        grid = np.full((len(sizes), len(seeds)), np.nan)
        found = values[at].astype(float)
        place = np.searchsorted(sizes, rows.column("n")[at]), np.searchsorted(seeds, rows.column("seed")[at])
        grid[place] = np.where(np.isfinite(found), found, np.nan)
        return grid

    def margin(self, dataset: str, metric: str, q: str | None = None) -> Margin:
        """The margin at each size: 5 % of what ELBO explains, at most 10 % of ELBO's metric where 0 is its best value.
        NaN where ELBO was not run at beta = 1, or explains nothing."""
        elbo, trivial = (
            self._elbo(dataset, metric, q or "whitened", name + metric) for name in ("test_", "trivial_test_")
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            explained = EXPLAINED_SHARE * _mean(trivial - elbo)
            margin = np.where(explained > 0, explained, np.nan)
            no_zero = (self.tasks.get(dataset), metric) == DENSITY
            return margin if no_zero else np.minimum(margin, METRIC_SHARE * _mean(elbo))

    def _elbo(self, dataset: str, metric: str, q: str, value: str) -> Values:
        """A value of ELBO at beta = 1: of fits, and where there are none, at the end of learning curves."""
        found = self.fit(dataset, "elbo", metric, q, value).values
        for method in ("beta_elbo", "elbo"):
            found = np.where(np.isnan(found), self.curve(dataset, method, 1.0, q, value=value).values, found)
        return found

    def compare(
        self,
        says: str,
        dataset: str,
        q: str | None,
        pairs: Sequence[tuple[Line, Line]],
        rule: Rule,
        within: str | float,
    ) -> Part:
        """A part that is judged by size: `rule` between ours and the rival of every pair, with the margin of a metric
        or a given one."""
        lines = list({id(line): line for pair in pairs for line in pair}.values())
        part = Part(says, dataset, q, tolerant=rule.tolerant, **made_by(*((line.rows, line.at) for line in lines)))
        found = compare(*(np.stack([pair[side].values for pair in pairs]) for side in (0, 1)))
        run = found.repetitions > 0
        if not run.any():
            return part
        sizes = self.sizes[dataset]
        margin = self.margin(dataset, within, q) if isinstance(within, str) else np.full(len(sizes), within)
        spread = found.corrected(overlap(self.stands_for.get(dataset, dataset), self.tasks[dataset], int(sizes[-1])))
        told = [states(one, margin, rule) for one in (found, spread)]
        part.states = {int(n): state for n, state in zip(sizes, told[0], strict=True) if state}
        part.verdict, part.corrected = (
            by_size([state for state in some if state], rule.tolerant) if part.states else Verdict.UNDECIDABLE
            for some in told
        )
        columns = vars(found) | {"p": found.p, "p_corrected": spread.p, "half_width": found.half_width}
        part.comparisons = [
            {"ours_name": pairs[k][0].name, "rival_name": pairs[k][1].name, "n": int(sizes[s])}
            | {"margin": margin[s].item(), **{name: values[k, s].item() for name, values in columns.items()}}
            for k, s in np.argwhere(run)
        ]
        part.deciding = int(rule.decides(found.difference[run]))
        counts = found.repetitions[run]
        part.repetitions = int(counts[counts >= MIN_REPETITIONS].min() if part.states else counts.max())
        part.reason = self._reason(part, lines)
        return part

    def _reason(self, part: Part, lines: list[Line]) -> str:
        said, told = [], part.states.values()
        if not part.states:
            said.append(f"repetitions: {part.repetitions} of the {MIN_REPETITIONS} that a test needs")
        elif State.INCOMPLETE in told:
            absent = [line.name for line in lines if np.isnan(line.values).all()]
            said.append(f"not run: {', '.join(absent)}" if absent else "at some sizes a rival has too few repetitions")
        elif part.verdict is Verdict.UNDECIDABLE:
            said.append("no margin: ELBO at β = 1 was not run at some sizes, or explains nothing there")
        if lost := sum(line.lost for line in lines):
            said.append(f"{lost} failed or not finite, left out")
        return "; ".join(said)


def made_by(*sources: tuple[Rows, Int[np.ndarray, " N"]], most: int = 3) -> dict[str, Any]:
    """Of rows at some positions: their number, the most frequent commands that made them, and the commits."""
    commands: Counter[str] = Counter()
    commits: Counter[str] = Counter()
    for rows, at in sources:
        for name, counter in (("command", commands), ("commit", commits)):
            codes, texts = rows.codes(name)
            counts = np.bincount(codes[at] + 1, minlength=len(texts) + 1)[1:]
            counter.update({texts[i]: int(counts[i]) for i in np.flatnonzero(counts)})
    return {
        "records": sum(len(at) for _, at in sources),
        "commands": [command for command, _ in commands.most_common(most)],
        "commits": sorted(commits),
    }


def family(dataset: str) -> str:
    """`peds1` for each of Peds1's directions (a stand-in for one serves for all), else the dataset itself."""
    return dataset.split("_dir")[0] if dataset.startswith("peds1_dir") else dataset


def _mean(values: Values) -> Float[np.ndarray, " S"]:
    """Over the repetitions that there are; NaN where there are none."""
    known = np.isfinite(values)
    return np.where(known, values, 0.0).sum(1) / known.sum(1)


def _selected_by(fits: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Of each group, the row that was selected by a validation metric, else the one that there is."""
    ordered = fits.assign(_other=fits["selected_by"] != metric).sort_values("_other", kind="stable")
    return ordered.drop_duplicates("group")
