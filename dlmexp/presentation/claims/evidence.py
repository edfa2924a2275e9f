"""What claims are judged by: the rows of one setting, as lines of values by size and seed, and
their margins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from dlmexp.common.catalogue import entries, family
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.table import rows_for
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Part
from dlmexp.presentation.claims.rules import Margin, Rule, State, Verdict, by_size, compare, states
from dlmexp.presentation.labels import estimator_label, method_label

LINE = ["dataset", "parameterisation", "method", "estimator", "samples"]
MADE = ("command", "commit")
DLM = ("joint_log_dlm", "fixed_log_dlm")
Values = Float[np.ndarray, "S R"]  # by size and seed of a dataset; NaN where there is none
Places = Int[np.ndarray, " N"]  # positions of rows


@dataclass(frozen=True)
class Line:
    """One side of a comparison, lower being better, and where its rows are in the evidence."""

    name: str
    values: Values
    at: Places
    lost: int = 0  # repetitions that failed or are not finite


Pairs = Sequence[tuple[Line, Line]]  # ours and a rival


class Evidence:
    """The rows of one column of verdicts: one protocol with its own values, or one changed setting.

    `frame` has, under `kind`, the fits that were selected by NLL and by MSE, and the candidates of
    learning curves and of gradient draws. `capped`: a preset ended runs after few iterations, which
    says nothing about convergence."""

    def __init__(
        self,
        results: ResultsFolder,
        table: pd.DataFrame,
        candidates: pd.DataFrame,
        capped: bool = False,
    ):
        self.results, self.candidates, self.capped = results, candidates, capped
        fits = table[table["role"] == "fit"]
        kinds = {by: rows_for(fits, by) for by in ("nll", "mse")}
        for role in ("curve", "gradient"):
            kinds[role] = candidates[candidates["role"] == role].drop_duplicates(["key", "method"])
        rows = [rows.assign(kind=kind) for kind, rows in kinds.items() if len(rows)]
        self.frame = pd.concat(rows or [table.assign(kind="")], ignore_index=True)
        lines = self.frame[["kind", *LINE]].assign(samples=self.frame["samples"].fillna(-1))
        self.lines: Any = lines.groupby(["kind", *LINE], sort=False, observed=True).indices
        self._columns: dict[str, np.ndarray] = {}
        places = list(
            candidates[["dataset", "n", "seed"]].drop_duplicates().groupby("dataset", observed=True)
        )
        self.sizes: dict[str, np.ndarray] = {
            str(name): np.unique(some["n"]) for name, some in places
        }
        self.seeds: dict[str, np.ndarray] = {
            str(name): np.unique(some["seed"]) for name, some in places
        }
        facts = (
            candidates[["dataset", "task", "stands_for"]]
            .drop_duplicates("dataset")
            .set_index("dataset")
        )
        self.tasks: dict[str, str] = dict(facts["task"].items())  # pyright: ignore[reportAttributeAccessIssue]
        self.stands_for: dict[str, str] = dict(facts["stands_for"].dropna().items())  # pyright: ignore

    def places(self, *datasets: str, kind: str = "nll") -> list[tuple[str, str]]:
        """The paper's datasets named, and the stand-ins for them that have records, each with the
        coordinates of q that were run (whitened where none were)."""
        wanted = {family(name) for name in datasets}
        names = [
            *datasets,
            *(name for name, of in sorted(self.stands_for.items()) if family(of) in wanted),
        ]
        run = {key[1:3] for key in self.lines if key[0] == kind}
        both = {name: [q for q in ("whitened", "unwhitened") if (name, q) in run] for name in names}
        return [(name, q) for name in names for q in both[name] or ["whitened"]]

    def column(self, name: str) -> np.ndarray:
        """A column of `frame` as an array; NaN everywhere where the table does not have it."""
        if name not in self._columns:
            known = name in self.frame
            self._columns[name] = (
                self.frame[name].to_numpy() if known else np.full(len(self.frame), np.nan)
            )
        return self._columns[name]

    def made(self, *at: Places) -> dict[str, Any]:
        """How the rows at these positions were made, as fields of a part."""
        places = np.concatenate(at)
        return made_by({name: self.frame[name].array.take(places) for name in MADE})

    def at(
        self, kind: str, dataset: str, q: str, method: str, estimator: str, samples: float | None
    ) -> Places:
        """Positions of the rows of a line."""
        key = (kind, dataset, q, method, estimator, -1.0 if samples is None else float(samples))
        return self.lines.get(key, np.array([], dtype=int))

    def line(self, name: str, dataset: str, at: Places, values: np.ndarray) -> Line:
        """Values of rows (an array as long as `frame`) by size and seed of their dataset; NaN where
        not finite."""
        sizes, seeds = self.sizes.get(dataset, np.array([])), self.seeds.get(dataset, np.array([]))
        grid, found = np.full((len(sizes), len(seeds)), np.nan), values[at].astype(float)
        places = (
            np.searchsorted(sizes, self.column("n")[at]),
            np.searchsorted(seeds, self.column("seed")[at]),
        )
        grid[places] = np.where(np.isfinite(found), found, np.nan)
        lost = (self.column("status")[at] == "failed") | np.isinf(found)
        return Line(name, grid, at, int(lost.sum()))

    def fit(
        self, dataset: str, method: str, metric: str, q: str = "whitened", value: str = ""
    ) -> Line:
        """A method with its beta selected on validation, at every size and seed: its test metric,
        or another `value`. DLM on counts is trained with bMC-10, as in the paper."""
        sampled = self.tasks.get(dataset) == "count" and method in DLM
        estimator = ("bmc", 10) if sampled else ("exact", None)
        at = self.at("mse" if metric == "mse" else "nll", dataset, q, method, *estimator)
        return self.line(method_label(method), dataset, at, self.column(value or f"test_{metric}"))

    def curve(
        self, dataset: str, method: str, beta: float, q: str = "whitened", estimator: str = "exact",
        samples: int | None = None, name: str = "", value: str = "test_nll",
    ) -> Line:  # fmt: skip
        """The end of learning curves at one beta."""
        at = self.at("curve", dataset, q, method, estimator, samples)
        at = at[np.isclose(self.column("beta")[at].astype(float), beta)]
        return self.line(
            name or f"{method_label(method)}, β={beta:g}", dataset, at, self.column(value)
        )

    def estimator(self, dataset: str, q: str, estimator: str, samples: int | None = None) -> Line:
        """The end of joint DLM's learning curves at beta = 0.1 with one gradient estimator."""
        label = estimator_label(estimator, samples)
        return self.curve(dataset, "joint_log_dlm", 0.1, q, estimator, samples, label)

    def margin(self, dataset: str, metric: str, q: str = "whitened") -> Margin:
        """The margin at each size: 5 % of what ELBO explains, at most 10 % of ELBO's metric where 0
        is its best value. NaN where ELBO was not run at beta = 1, or explains nothing."""
        elbo, trivial = (
            self._elbo(dataset, metric, q, name + metric) for name in ("test_", "trivial_test_")
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            explained, whole = (
                share * np.where(known := np.isfinite(values), values, 0.0).sum(1) / known.sum(1)
                for share, values in (
                    (rules.EXPLAINED_SHARE, trivial - elbo),
                    (rules.METRIC_SHARE, elbo),
                )
            )
            margin = np.where(explained > 0, explained, np.nan)
            return (
                margin
                if (self.tasks.get(dataset), metric) == rules.DENSITY
                else np.minimum(margin, whole)
            )

    def _elbo(self, dataset: str, metric: str, q: str, value: str) -> Values:
        """A value of ELBO at beta = 1: of fits, and where there are none, at the end of learning
        curves."""
        found = self.fit(dataset, "elbo", metric, q, value).values
        for method in ("beta_elbo", "elbo"):
            found = np.where(
                np.isnan(found), self.curve(dataset, method, 1.0, q, value=value).values, found
            )
        return found

    def compare(
        self, says: str, dataset: str, q: str, pairs: Pairs, rule: Rule, within: str | float
    ) -> Part:
        """A part that is judged by size: `rule` between ours and the rival of every pair, with the
        margin of a metric or a given one."""
        lines = list({id(line): line for pair in pairs for line in pair}.values())
        part = Part(
            says, dataset, q, tolerant=rule.tolerant, **self.made(*(line.at for line in lines))
        )
        found = compare(*(np.stack([pair[side].values for pair in pairs]) for side in (0, 1)))
        run = found.repetitions > 0
        if not run.any():
            return part
        sizes = self.sizes[dataset]
        margin = (
            self.margin(dataset, within, q)
            if isinstance(within, str)
            else np.full(len(sizes), within)
        )
        spread = found.corrected(
            _overlap(self.stands_for.get(dataset, dataset), self.tasks[dataset], int(sizes[-1]))
        )
        told = [states(one, margin, rule) for one in (found, spread)]
        part.states = {int(n): state for n, state in zip(sizes, told[0], strict=True) if state}
        part.verdict, part.corrected = (
            by_size([state for state in some if state], rule.tolerant)
            if part.states
            else Verdict.UNDECIDABLE
            for some in told
        )
        columns = vars(found) | {
            "p": found.p,
            "p_corrected": spread.p,
            "half_width": found.half_width(),
        }
        part.comparisons = [
            {"ours_name": pairs[k][0].name, "rival_name": pairs[k][1].name, "n": int(sizes[s])}
            | {
                "margin": margin[s].item(),
                **{name: values[k, s].item() for name, values in columns.items()},
            }
            for k, s in np.argwhere(run)
        ]
        part.deciding = int(rule.decides(found.difference[run]))
        counts = found.repetitions[run]
        part.repetitions = int(
            counts[counts >= rules.MIN_REPETITIONS].min() if part.states else counts.max()
        )
        part.few, part.reason = not part.states, _reason(part, lines)
        return part


def _overlap(dataset: str, task: str, largest: int) -> float:
    """Test rows / other rows of a repetition, which Nadeau and Bengio's correction needs. `dataset`
    is one of the paper's, or what it stands in for. Airline-type data train on all but 100 000
    rows, the `largest` size."""
    rows = entries("dataset").get(dataset, {}).get("rows") or 2 * largest
    if dataset == "airline":
        return 100_000 / largest
    if dataset == "song":
        return 10_000 / (rows - 10_000)
    return 1 / 3 if task == "regression" else 1000 / max(rows - 1000, 1000)


def _reason(part: Part, lines: list[Line]) -> str:
    """Why a part can't be told, and what was left out."""
    said = []
    if not part.states:
        said.append(
            f"repetitions: {part.repetitions} of the {rules.MIN_REPETITIONS} that a test needs"
        )
    elif State.INCOMPLETE in part.states.values():
        absent = [line.name for line in lines if np.isnan(line.values).all()]
        said.append(
            f"not run: {', '.join(absent)}"
            if absent
            else "at some sizes a rival has too few repetitions"
        )
    elif part.verdict is Verdict.UNDECIDABLE:
        said.append("no margin: ELBO at β = 1 was not run at some sizes, or explains nothing there")
    if lost := sum(line.lost for line in lines):
        said.append(f"{lost} failed or not finite, left out")
    return "; ".join(said)


def made_by(rows: Any, most: int = 3) -> dict[str, Any]:
    """Number of rows, their most frequent commands, and their commits; both columns are
    categories."""
    found: dict[str, list[str]] = {}
    for name in MADE:
        texts = pd.Categorical(rows[name])
        counts = np.bincount(texts.codes + 1, minlength=len(texts.categories) + 1)[1:]
        found[name] = [
            str(texts.categories[i])
            for i in np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        ]
    return {
        "records": len(rows["commit"]),
        "commands": found["command"][:most],
        "commits": sorted(found["commit"]),
    }
