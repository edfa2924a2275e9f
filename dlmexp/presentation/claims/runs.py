"""Claims about runs: the rejection sampler (16, 26), convergence (18), cost (19, 33).

uPS is unbiased product sampling, and bMC is biased Monte Carlo, two estimators of gradients.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.common.catalogue import PAPER
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import ClaimTest, Origin, Part, claim
from dlmexp.presentation.claims.evidence import (
    DEFAULT_BETA,
    Evidence,
    MetricLine,
    Positions,
    origin_of,
)
from dlmexp.presentation.claims.rules import BETTER, COMPARABLE, NO_WORSE, Outcome
from dlmexp.presentation.labels import estimator_label

# Samplers that go through the same proposals as the paper's.
REJECTING = ("rejection", "hybrid", "individual")
# Test rows over other rows, for `Evidence.compare` to correct tests for the rows that repetitions
# share. The time of a step does not depend on which rows are drawn: it needs no correction.
NO_OVERLAP = 0.0


@claim(
    16,
    "supplement B",
    "sampler-rates",
    text="The rejection sampler rejects about 2 tries on average after the first iterations.",
    figures=(),
)
def rejections(evidence: Evidence) -> Iterator[Part]:
    """Compute rejected tries per accepted one, over the blocks of 100 steps after the first.

    A record without such blocks has one rate for all iterations, which does not count.
    """
    statement = "the rejection sampler rejects about 2 tries per sample"
    rejecting = np.isin(evidence.column("sampler").astype(str), REJECTING)
    accepting = evidence.column("acceptance").astype(float) > 0
    rows = np.flatnonzero(rejecting & accepting)
    if not len(rows):
        yield _not_run(statement)
    # A size and seed may have been run more than once. Later rows replace earlier ones when they
    # are arranged by size and seed, so the longest run comes last.
    rows = rows[np.argsort(evidence.column("max_iterations")[rows], kind="stable")]
    for (dataset, parameterisation), of_data in _groups(
        evidence.frame.iloc[rows], ["dataset", "parameterisation"]
    ):
        positions = of_data.index.to_numpy()
        yield _rejected(evidence, statement, str(dataset), str(parameterisation), positions)


def _not_run(statement: str) -> Part:
    """Return a part without tests, for the dataset that the experiments of these claims run."""
    return Part(statement, "abalone", "whitened")


def _rejected(
    evidence: Evidence, statement: str, dataset: str, parameterisation: str, rows: Positions
) -> Part:
    """Return the part that tests whether about two tries are rejected per accepted one."""
    overall = _rejected_per_accepted(evidence.column("acceptance")[rows].astype(float)).mean()
    later = np.full(len(evidence.frame), np.nan)
    for row in rows:
        # Rates of acceptance by block of `rules.FIRST_ITERATIONS` steps.
        rates = evidence.arrays(row).get("acceptance", [])
        if len(rates) > 1:
            later[row] = _rejected_per_accepted(np.mean(rates[1:]))
    with_rates = rows[np.isfinite(later[rows])]
    line = evidence.line("rejected per accepted", dataset, with_rates, later)
    two = evidence.constant("2", line, value=rules.REJECTED)
    part = evidence.compare(
        statement,
        dataset,
        parameterisation,
        [(line, two)],
        relation=COMPARABLE,
        within=rules.ABOUT_TWO,
    )
    part.figures = {"rejected_over_all_iterations": float(overall)}
    if not part.tests:
        part.tests = [ClaimTest(reason="rates by 100 steps were not recorded")]
        part.reason = f"{overall:.3g} over all iterations"
        part.origin = evidence.origin(rows)
        part.repetitions = len(set(evidence.column("seed")[rows]))
    return part


def _rejected_per_accepted(acceptance: Any) -> Any:
    return 1 / acceptance - 1


CONVERGENCE_COLUMNS = [
    "key",
    "dataset",
    "parameterisation",
    "seed",
    "status",
    "converged",
    "minibatch",
    "samples",
    "command",
    "commit",
]
DETERMINISTIC = "almost every run of a deterministic objective converges"
SAMPLED = "(counted apart) almost every run of a sampled or minibatch objective converges"


@claim(
    18,
    "supplement A",
    text=(
        "Almost every run converges. Counted are fits and learning curves on the paper's data and "
        "stand-ins with a stopping rule and a deterministic objective on all rows; sampled and "
        "minibatch ones are counted apart."
    ),
)
def converged_share(evidence: Evidence) -> Iterator[Part]:
    """Count the fits with a stopping rule that met it; a failed one has not converged.

    Runs for a set number of iterations and closed forms have nothing to converge.
    """
    runs = _runs_with_stopping_rule(evidence)
    deterministic = runs["minibatch"].isna() & runs["samples"].isna()
    runs = runs.assign(statement=np.where(deterministic, DETERMINISTIC, SAMPLED))
    for (dataset, parameterisation, statement), rows in _groups(
        runs, ["dataset", "parameterisation", "statement"]
    ):
        converged = int(rows["converged"].eq(True).sum())
        failed = int((rows["status"] != "done").sum())
        reason = f"{converged} of {len(rows)} runs converged"
        if failed:
            reason += f", {failed} failed"
        test = ClaimTest(_outcome_of_share(converged / len(rows)))
        if evidence.capped:
            test = ClaimTest(reason="the preset ends runs early")
        yield Part(
            str(statement),
            str(dataset),
            str(parameterisation),
            [test],
            reason=reason,
            supplementary=statement == SAMPLED,
            figures={"converged": converged, "runs": len(rows)},
            repetitions=rows["seed"].nunique(),
            origin=_origin(rows),
        )


def _outcome_of_share(share: float) -> Outcome:
    """Return what the share of converged runs says.

    All runs are counted, and not a sample of them, so the share is compared without a test.
    """
    if share >= rules.ALMOST_ALL:
        return Outcome.SUPPORTED
    if share < rules.NOT_ALMOST_ALL:
        return Outcome.CONTRADICTED
    return Outcome.NO_DIFFERENCE


def _runs_with_stopping_rule(evidence: Evidence) -> pd.DataFrame:
    """Return the runs with a stopping rule on the paper's data and stand-ins, a row each."""
    # Every fit counts, while `evidence.frame` has only those that validation selected.
    frame = evidence.candidates
    stand_in_datasets = list(evidence.stands_for)
    known = frame["dataset"].isin([*PAPER, *stand_in_datasets])
    with_rule = frame["window"].notna() & frame["max_iterations"].notna()
    fitted = frame["role"].isin(["fit", "curve"])
    return frame.loc[known & with_rule & fitted, CONVERGENCE_COLUMNS].drop_duplicates("key")


REJECTION = "uPS-{0:g} by rejection is slower than bMC-{0:g}"
WITHOUT_REJECTION = "uPS-{0:g} without rejection costs no more than bMC-{0:g}"
# A part is about runs that agree in these ...
TIMED = ["dataset", "parameterisation", "samples"]
# ... and compares pairs of runs that agree in these too.
SAME_WORK = [
    "device",
    "host",
    "commit",
    "n",
    "variant",
    "beta",
    "evaluate",
    "max_iterations",
    "epochs",
    "seed",
]
TIMING_COLUMNS = [
    "key",
    *TIMED,
    *SAME_WORK,
    "seconds",
    "iterations",
    "alone",
    "estimator",
    "sampler",
    "command",
]


@claim(
    19,
    "section 6.2",
    "sampler",
    "count-learning",
    text=(
        "uPS, with the paper's rejection sampler, is significantly slower than bMC (ours, without "
        "rejection, is counted apart)."
    ),
    figures=("count-learning",),
)
def cost(evidence: Evidence) -> Iterator[Part]:
    """Compare seconds per iteration of uPS and bMC at the same S, data and device.

    The seeds of a batch train together, and each has an equal share of its time. So their ratios do
    not scatter, and the ratio alone decides.
    """
    runs = _timed_runs(evidence)
    bmc = runs[runs["estimator"] == "bmc"]
    # The other two samplers that reject belong to claim 26.
    is_of_claim_26 = runs["sampler"].isin(["hybrid", "individual"])
    ups = runs[(runs["estimator"] == "ups") & ~is_of_claim_26]
    by_rejection = ups["sampler"] == "rejection"
    ups = ups.assign(statement=np.where(by_rejection, REJECTION, WITHOUT_REJECTION))

    # Settings that were run with both estimators.
    comparable_settings = ups.merge(bmc[TIMED].drop_duplicates(), on=TIMED)[[*TIMED, "statement"]]
    # Pairs of runs that had the device to themselves.
    bmc_alone = bmc.loc[bmc["alone"], [*TIMED, *SAME_WORK, "log_seconds"]]
    pairs = ups[ups["alone"]].merge(bmc_alone, on=[*TIMED, *SAME_WORK], suffixes=("", "_bmc"))
    pairs_by_part = dict(list(_groups(pairs, [*TIMED, "statement"])))

    if comparable_settings.empty:
        yield _not_run(REJECTION.format(10))
    parts = comparable_settings.drop_duplicates().sort_values([*TIMED, "statement"])
    for dataset, parameterisation, samples, statement in parts.itertuples(index=False):
        rows = pairs_by_part.get((dataset, parameterisation, samples, statement))
        says = statement.format(samples)
        is_ours = statement == WITHOUT_REJECTION
        if rows is None:
            reason = "no two runs that could be compared had the device to themselves"
            yield Part(
                says, dataset, parameterisation, [ClaimTest(reason=reason)], supplementary=is_ours
            )
            continue
        for device, of_device in _groups(rows, "device"):
            yield _cost(evidence, f"{says}, on {device}", of_device, is_ours)


def _cost(evidence: Evidence, statement: str, pairs: pd.DataFrame, is_ours: bool) -> Part:
    """Compare seconds per step of uPS and bMC over pairs of runs."""
    dataset = str(pairs["dataset"].iloc[0])
    parameterisation = str(pairs["parameterisation"].iloc[0])
    ups = _line_of_runs(evidence, "log seconds, uPS", dataset, pairs, "log_seconds")
    bmc = _line_of_runs(evidence, "log seconds, bMC", dataset, pairs, "log_seconds_bmc")
    # First the estimator that is claimed to be faster, or no slower.
    pair = (ups, bmc) if is_ours else (bmc, ups)
    relation = NO_WORSE if is_ours else BETTER
    margin = math.log(rules.COST_MARGIN)
    part = evidence.compare(
        statement, dataset, parameterisation, [pair], relation, within=margin, overlap=NO_OVERLAP
    )
    ratio = math.exp((pairs["log_seconds"] - pairs["log_seconds_bmc"]).mean())
    part.supplementary = is_ours
    part.origin = _origin(pairs)
    part.figures = {"ratio": ratio}
    part.reason = f"a step takes {ratio:.2f} times as long"
    return part


def _line_of_runs(
    evidence: Evidence, name: str, dataset: str, runs: pd.DataFrame, column: str
) -> MetricLine:
    """Return a column of runs by size and seed, the mean where there are several."""
    means = runs.groupby(["n", "seed"], observed=True)[column].mean().reset_index()
    values = evidence.arranged(
        dataset, means["n"].to_numpy(), means["seed"].to_numpy(), means[column].to_numpy()
    )
    return MetricLine(name, values, np.array([], dtype=int))


@claim(
    26,
    "supplement B",
    "sampler-hybrid",
    text="The hybrid sampler takes at most half of the time of sampling row by row.",
    figures=(),
)
def hybrid_halves(evidence: Evidence) -> Iterator[Part]:
    """Compare seconds per step of uPS with the samplers `hybrid` and `individual`."""
    statement = "twice the time of the hybrid sampler is no more than that of sampling row by row"
    runs = _timed_runs(evidence)
    hybrid = runs[(runs["sampler"] == "hybrid") & runs["alone"]]
    individual = runs.loc[
        (runs["sampler"] == "individual") & runs["alone"], [*TIMED, *SAME_WORK, "log_seconds"]
    ]
    pairs = hybrid.merge(individual, on=[*TIMED, *SAME_WORK], suffixes=("", "_individual"))
    if pairs.empty:
        yield _not_run(statement)
    pairs = pairs.assign(log_twice=pairs["log_seconds"] + math.log(2))
    for (dataset, parameterisation, device), rows in _groups(
        pairs, ["dataset", "parameterisation", "device"]
    ):
        ours = _line_of_runs(evidence, "log seconds, twice hybrid", dataset, rows, "log_twice")
        rival = _line_of_runs(
            evidence, "log seconds, row by row", dataset, rows, "log_seconds_individual"
        )
        says = f"{statement}, on {device}"
        margin = math.log(rules.COST_MARGIN)
        part = evidence.compare(
            says,
            dataset,
            parameterisation,
            [(ours, rival)],
            NO_WORSE,
            within=margin,
            overlap=NO_OVERLAP,
        )
        ratio = math.exp((rows["log_seconds"] - rows["log_seconds_individual"]).mean())
        part.figures = {"ratio": ratio}
        part.reason = f"the hybrid sampler takes {ratio:.2f} of the time"
        part.origin = _origin(rows)
        yield part


TRADE_SAMPLES = (1, 10, 100)


@claim(
    33,
    "section 1; section 6.2; section 7",
    "count-learning",
    "airline-sampling-0.1",
    text=(
        "bMC is the better trade in convergence time: it reaches the final NLL of bMC-100 sooner "
        "than uPS with as many samples (ours, without rejection)."
    ),
)
def reaches_sooner(evidence: Evidence) -> Iterator[Part]:
    """Compare the seconds of training until the test NLL first is at or below a target.

    The target is the test NLL at the end of bMC-100, plus the margin. Only runs that had their
    device to themselves count. A run that never reaches the target counts with its time until the
    last evaluation.
    """
    for dataset, parameterisation in evidence.datasets_and_q(
        "abalone", "peds1_dir2", "airline", kind="curve"
    ):
        if dataset not in evidence.sizes:
            yield Part("bMC-1 is sooner than uPS-1", dataset, parameterisation)
            continue
        # [sizes, seeds]; the margin is [sizes].
        ends = evidence.estimator(dataset, parameterisation, "bmc", 100).values
        targets = ends + evidence.margin(dataset, "nll", parameterisation)[:, None]
        for samples in TRADE_SAMPLES:
            bmc = _log_seconds_to(evidence, targets, dataset, parameterisation, "bmc", samples)
            ups = _log_seconds_to(evidence, targets, dataset, parameterisation, "ups", samples)
            says = f"bMC-{samples} is sooner than uPS-{samples}"
            margin = math.log(rules.COST_MARGIN)
            yield evidence.compare(says, dataset, parameterisation, [(bmc, ups)], BETTER, margin)


def _log_seconds_to(
    evidence: Evidence,
    targets: np.ndarray,
    dataset: str,
    parameterisation: str,
    estimator: str,
    samples: int,
) -> MetricLine:
    """Return log seconds of training until the test NLL is at most the target [sizes, seeds]."""
    rows = evidence.at("curve", dataset, parameterisation, "joint_log_dlm", estimator, samples)
    betas = evidence.column("beta")[rows].astype(float)
    alone = evidence.column("alone")[rows] == True  # noqa: E712 - NaN where it is not known
    rows = rows[np.isclose(betas, DEFAULT_BETA) & alone]
    seconds = np.full(len(evidence.frame), np.nan)
    size = np.searchsorted(evidence.sizes[dataset], evidence.column("n")[rows])
    seed = np.searchsorted(evidence.seeds[dataset], evidence.column("seed")[rows])
    for row, target in zip(rows, targets[size, seed], strict=True):
        curve = evidence.arrays(row)
        if "test_nll" not in curve or np.isnan(target):
            continue
        reached = np.flatnonzero(curve["test_nll"] <= target)
        position = reached[0] if len(reached) else -1
        # The first evaluation is at iteration 0, the logarithm of which is not finite.
        iterations = max(float(curve["evaluated_at"][position]), 1.0)
        share = iterations / float(evidence.column("iterations")[row])
        seconds[row] = share * float(evidence.column("seconds")[row])
    name = f"log seconds, {estimator_label(estimator, samples)}"
    return evidence.line(name, dataset, rows, np.log(seconds))


def _timed_runs(evidence: Evidence) -> pd.DataFrame:
    """Return the runs of uPS and bMC that were timed, with the logarithm of seconds per step."""
    frame = evidence.candidates
    timed = frame["role"].isin(["curve", "timing"]) & frame["estimator"].isin(["ups", "bmc"])
    timed &= (frame["seconds"] > 0) & (frame["iterations"] > 0)
    runs = frame.loc[timed, TIMING_COLUMNS].drop_duplicates("key")
    return runs.assign(
        log_seconds=np.log(runs["seconds"] / runs["iterations"]), alone=runs["alone"].eq(True)
    )


def _groups(frame: pd.DataFrame, by: str | list[str]) -> Iterable[tuple[Any, pd.DataFrame]]:
    """Return the groups of rows that agree in the columns `by`.

    Each is a pair of the values in these columns and the rows. They are sorted by the values.
    """
    return frame.groupby(by, observed=True)


def _origin(rows: pd.DataFrame) -> Origin:
    return origin_of(rows["command"], rows["commit"])
