"""Claims about runs: the rejection sampler (16, 26), convergence (18) and cost (19, 33).

uPS (unbiased product sampling) and bMC (biased Monte Carlo) are estimators of gradients.

The decorator `claim` takes the number of a claim, its place in the paper, and the experiments that
compute its records.
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

# The samplers that reject the same proposals as the sampler of the paper.
REJECTION_SAMPLERS = ("rejection", "hybrid", "individual")
# `Evidence.compare` corrects tests for the rows of the data that repetitions share. The time of a
# step does not depend on these rows, so it needs no correction.
NO_OVERLAP = 0.0
# Times are compared by their logarithms, so the margin is a logarithm too.
LOG_COST_MARGIN = math.log(rules.COST_RATIO)


@claim(
    16,
    "supplement B",
    "sampler-rates",
    text="The rejection sampler rejects about 2 tries on average after the first iterations.",
    figures=(),
)
def rejections(evidence: Evidence) -> Iterator[Part]:
    """Compute rejected tries per accepted one, over the blocks of 100 steps after the first.

    A record that has no rates by block, but a single rate for all iterations, does not count.
    """
    statement = "the rejection sampler rejects about 2 tries per sample"
    is_rejecting = np.isin(evidence.column("sampler").astype(str), REJECTION_SAMPLERS)
    has_rate = evidence.column("acceptance").astype(float) > 0
    rows = np.flatnonzero(is_rejecting & has_rate)
    if not len(rows):
        yield _not_run(statement)
        return
    # A size and seed may have been run more than once. Later rows replace earlier ones when values
    # are arranged by size and seed, so the longest run comes last.
    rows = rows[np.argsort(evidence.column("max_iterations")[rows], kind="stable")]
    groups = _groups(evidence.frame.iloc[rows], ["dataset", "parameterisation"])
    for (dataset, parameterisation), rows_of_group in groups:
        # The index of `evidence.frame` counts from 0, so labels are positions, also after `iloc`.
        positions = rows_of_group.index.to_numpy()
        yield _compare_rejections(
            evidence, statement, str(dataset), str(parameterisation), positions
        )


def _not_run(statement: str) -> Part:
    """Return a part without tests, on the dataset of the experiments of these claims."""
    return Part(statement, dataset="abalone", q="whitened")


def _compare_rejections(
    evidence: Evidence, statement: str, dataset: str, parameterisation: str, rows: Positions
) -> Part:
    """Return the part that tests whether about two tries are rejected per accepted one."""
    acceptance = evidence.column("acceptance")[rows].astype(float)
    over_all_iterations = _rejected_per_accepted(acceptance).mean()
    after_first_block = np.full(len(evidence.frame), np.nan)
    # Rates are recorded for blocks of 100 steps. The first block is left out, as training starts at
    # the prior, where the sampler rejects most tries.
    for row in rows:
        rates_by_block = evidence.arrays(row).get("acceptance", [])
        if len(rates_by_block) > 1:
            after_first_block[row] = _rejected_per_accepted(np.mean(rates_by_block[1:]))
    with_blocks = rows[np.isfinite(after_first_block[rows])]
    line = evidence.line("rejected per accepted", dataset, with_blocks, after_first_block)
    target = evidence.constant("2", line, value=rules.REJECTED_PER_ACCEPTED)
    part = evidence.compare(
        statement,
        dataset,
        parameterisation,
        [(line, target)],
        relation=COMPARABLE,
        within=rules.REJECTED_MARGIN,
    )
    part.figures = {"rejected_over_all_iterations": float(over_all_iterations)}
    if not part.tests:
        part.tests = [ClaimTest(reason="rates by 100 steps were not recorded")]
        part.reason = f"{over_all_iterations:.3g} over all iterations"
        part.origin = evidence.origin(rows)
        part.repetitions = len(set(evidence.column("seed")[rows]))
    return part


def _rejected_per_accepted(acceptance: Any) -> Any:
    """Return the number of rejected tries per accepted one, from the rate of acceptance."""
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
    """Count the runs that met their stopping rule; failed runs have not converged.

    Runs for a set number of iterations and closed forms have no stopping rule and do not count.
    """
    runs = _runs_with_stopping_rule(evidence)
    is_deterministic = runs["minibatch"].isna() & runs["samples"].isna()
    runs = runs.assign(statement=np.where(is_deterministic, DETERMINISTIC, SAMPLED))
    groups = _groups(runs, ["dataset", "parameterisation", "statement"])
    for (dataset, parameterisation, statement), rows in groups:
        converged = int(rows["converged"].eq(True).sum())
        failed = int((rows["status"] != "done").sum())
        reason = f"{converged} of {len(rows)} runs converged"
        if failed:
            reason += f", {failed} failed"
        if evidence.ends_early:
            test = ClaimTest(reason="the preset ends runs early")
        else:
            test = ClaimTest(outcome=_outcome_of_share(converged / len(rows)))
        yield Part(
            str(statement),
            dataset=str(dataset),
            q=str(parameterisation),
            tests=[test],
            reason=reason,
            supplementary=statement == SAMPLED,
            figures={"converged": converged, "runs": len(rows)},
            repetitions=rows["seed"].nunique(),
            origin=_origin(rows),
        )


def _outcome_of_share(share: float) -> Outcome:
    """Return the outcome for a share of converged runs.

    The share is that of all runs and not of a sample, so it needs no statistical test.
    """
    if share >= rules.ALMOST_ALL_CONVERGED:
        return Outcome.SUPPORTED
    if share < rules.TOO_FEW_CONVERGED:
        return Outcome.CONTRADICTED
    return Outcome.NO_DIFFERENCE


def _runs_with_stopping_rule(evidence: Evidence) -> pd.DataFrame:
    """Return the runs with a stopping rule on the paper's data and stand-ins, with a row each."""
    # `evidence.frame` has only those fits that validation selected. Here all fits count.
    rows = evidence.candidates
    stand_ins = list(evidence.stands_for)
    is_on_paper_data = rows["dataset"].isin([*PAPER, *stand_ins])
    has_rule = rows["window"].notna() & rows["max_iterations"].notna()
    is_fit_or_curve = rows["role"].isin(["fit", "curve"])
    is_counted = is_on_paper_data & has_rule & is_fit_or_curve
    return rows.loc[is_counted, CONVERGENCE_COLUMNS].drop_duplicates("key")


REJECTION = "uPS-{0:g} by rejection is slower than bMC-{0:g}"
WITHOUT_REJECTION = "uPS-{0:g} without rejection costs no more than bMC-{0:g}"
# A part of claim 19 is about runs with equal values in these columns.
PART_COLUMNS = ["dataset", "parameterisation", "samples"]
# Times are compared between pairs of runs with equal values in these columns.
PAIR_COLUMNS = [
    *PART_COLUMNS,
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
    *PAIR_COLUMNS,
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
    """Compare seconds per iteration of uPS and bMC with equal samples, data and device.

    The seeds of a batch are trained together, and the record of each has an equal share of the
    time. So ratios of times have no scatter over seeds. The p-values of `Evidence.compare` are then
    0 or 1: its outcome depends only on whether the mean ratio is beyond the margin.
    """
    runs = _timed_runs(evidence)
    bmc = runs[runs["estimator"] == "bmc"]
    # The samplers `hybrid` and `individual` belong to claim 26.
    is_of_claim_26 = runs["sampler"].isin(["hybrid", "individual"])
    ups = runs[(runs["estimator"] == "ups") & ~is_of_claim_26]
    by_rejection = ups["sampler"] == "rejection"
    ups = ups.assign(statement=np.where(by_rejection, REJECTION, WITHOUT_REJECTION))

    # The parts: what was run with both estimators.
    key_columns = [*PART_COLUMNS, "statement"]
    run_with_bmc = bmc[PART_COLUMNS].drop_duplicates()
    parts = ups.merge(run_with_bmc, on=PART_COLUMNS)[key_columns]
    parts = parts.drop_duplicates().sort_values(key_columns)
    if parts.empty:
        yield _not_run(REJECTION.format(10))
        return

    # Only runs that had the device to themselves are compared.
    bmc_alone = bmc.loc[bmc["alone"], [*PAIR_COLUMNS, "log_seconds"]]
    pairs = ups[ups["alone"]].merge(bmc_alone, on=PAIR_COLUMNS, suffixes=("", "_bmc"))
    pairs_by_part = dict(list(_groups(pairs, key_columns)))
    for dataset, parameterisation, samples, template in parts.itertuples(index=False):
        pairs_of_part = pairs_by_part.get((dataset, parameterisation, samples, template))
        statement = template.format(samples)
        is_supplementary = template == WITHOUT_REJECTION
        if pairs_of_part is None:
            test = ClaimTest(
                reason="no two runs that could be compared had the device to themselves"
            )
            yield Part(
                statement,
                dataset,
                parameterisation,
                tests=[test],
                supplementary=is_supplementary,
            )
            continue
        for device, pairs_on_device in _groups(pairs_of_part, "device"):
            yield _compare_cost(
                evidence, f"{statement}, on {device}", pairs_on_device, is_supplementary
            )


def _compare_cost(
    evidence: Evidence, statement: str, pairs: pd.DataFrame, is_supplementary: bool
) -> Part:
    """Compare seconds per step of uPS and bMC over pairs of runs.

    Args:
        evidence: The records.
        statement: The statement.
        pairs: A row for each pair of runs, with the log seconds of both.
        is_supplementary: Whether the statement is our own, that uPS without rejection costs no more
            than bMC. Otherwise it is the paper's, that uPS by rejection is slower.
    """
    dataset = str(pairs["dataset"].iloc[0])
    parameterisation = str(pairs["parameterisation"].iloc[0])
    ups = _line_of_runs(evidence, "log seconds, uPS", dataset, pairs, "log_seconds")
    bmc = _line_of_runs(evidence, "log seconds, bMC", dataset, pairs, "log_seconds_bmc")
    # In a pair, the estimator that the statement calls faster, or no slower, comes first.
    if is_supplementary:
        pair = (ups, bmc)
        relation = NO_WORSE
    else:
        pair = (bmc, ups)
        relation = BETTER
    part = evidence.compare(
        statement,
        dataset,
        parameterisation,
        [pair],
        relation,
        within=LOG_COST_MARGIN,
        overlap=NO_OVERLAP,
    )
    ratio = math.exp((pairs["log_seconds"] - pairs["log_seconds_bmc"]).mean())
    part.supplementary = is_supplementary
    part.origin = _origin(pairs)
    part.figures = {"ratio": ratio}
    part.reason = f"a step takes {ratio:.2f} times as long"
    return part


def _line_of_runs(
    evidence: Evidence, name: str, dataset: str, runs: pd.DataFrame, column: str
) -> MetricLine:
    """Return a line with the means of a column of runs by size and seed."""
    means = runs.groupby(["n", "seed"], observed=True)[column].mean().reset_index()
    values = evidence.by_size_and_seed(
        dataset, means["n"].to_numpy(), means["seed"].to_numpy(), means[column].to_numpy()
    )
    return MetricLine(name, values, positions=np.array([], dtype=int))


@claim(
    26,
    "supplement B",
    "sampler-hybrid",
    text="The hybrid sampler takes at most half of the time of sampling row by row.",
    figures=(),
)
def hybrid_halves(evidence: Evidence) -> Iterator[Part]:
    """Compare twice the seconds per step of the sampler `hybrid` with those of `individual`."""
    statement = "twice the time of the hybrid sampler is no more than that of sampling row by row"
    runs = _timed_runs(evidence)
    runs_alone = runs[runs["alone"]]
    is_hybrid = runs_alone["sampler"] == "hybrid"
    is_individual = runs_alone["sampler"] == "individual"
    hybrid = runs_alone[is_hybrid]
    individual = runs_alone.loc[is_individual, [*PAIR_COLUMNS, "log_seconds"]]
    pairs = hybrid.merge(individual, on=PAIR_COLUMNS, suffixes=("", "_individual"))
    if pairs.empty:
        yield _not_run(statement)
        return
    # The logarithm of twice the time of the hybrid sampler.
    pairs = pairs.assign(log_twice=pairs["log_seconds"] + math.log(2))
    groups = _groups(pairs, ["dataset", "parameterisation", "device"])
    for (dataset, parameterisation, device), rows in groups:
        ours = _line_of_runs(evidence, "log seconds, twice hybrid", dataset, rows, "log_twice")
        rival = _line_of_runs(
            evidence, "log seconds, row by row", dataset, rows, "log_seconds_individual"
        )
        part = evidence.compare(
            f"{statement}, on {device}",
            dataset,
            parameterisation,
            [(ours, rival)],
            NO_WORSE,
            within=LOG_COST_MARGIN,
            overlap=NO_OVERLAP,
        )
        ratio = math.exp((rows["log_seconds"] - rows["log_seconds_individual"]).mean())
        part.figures = {"ratio": ratio}
        part.reason = f"the hybrid sampler takes {ratio:.2f} of the time"
        part.origin = _origin(rows)
        yield part


TRADE_SAMPLES = (1, 10, 100)  # the numbers of samples at which claim 33 compares both estimators


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
    """Compare the seconds of training until the test NLL first reaches a target.

    The target is the test NLL at the end of training with bMC-100, plus the margin. Only runs that
    had their device to themselves count. A run that never reaches the target counts with its time
    until the last evaluation.
    """
    datasets = evidence.datasets_and_q("abalone", "peds1_dir2", "airline", kind="curve")
    for dataset, parameterisation in datasets:
        if dataset not in evidence.sizes:
            yield Part("bMC-1 is sooner than uPS-1", dataset, parameterisation)
            continue
        final_nll = evidence.estimator(dataset, parameterisation, "bmc", 100).values
        margin_of_nll = evidence.margin(dataset, "nll", parameterisation)  # [sizes]
        targets = final_nll + margin_of_nll[:, None]  # [sizes, seeds]
        for samples in TRADE_SAMPLES:
            bmc = _log_seconds_to_targets(
                evidence, targets, dataset, parameterisation, "bmc", samples
            )
            ups = _log_seconds_to_targets(
                evidence, targets, dataset, parameterisation, "ups", samples
            )
            statement = f"bMC-{samples} is sooner than uPS-{samples}"
            pairs = [(bmc, ups)]
            yield evidence.compare(
                statement, dataset, parameterisation, pairs, BETTER, within=LOG_COST_MARGIN
            )


def _log_seconds_to_targets(
    evidence: Evidence,
    targets: np.ndarray,
    dataset: str,
    parameterisation: str,
    estimator: str,
    samples: int,
) -> MetricLine:
    """Return the log seconds of training until the test NLL first is at most the target.

    Args:
        evidence: The records.
        targets: The target of each run `[sizes, seeds]`.
        dataset: The dataset.
        parameterisation: The parameterisation of q.
        estimator: The estimator of the gradient.
        samples: Its number of samples.
    """
    rows = evidence.at("curve", dataset, parameterisation, "joint_log_dlm", estimator, samples)
    betas = evidence.column("beta")[rows].astype(float)
    was_alone = evidence.column("alone")[rows] == True  # noqa: E712 - NaN where it is not known
    rows = rows[np.isclose(betas, DEFAULT_BETA) & was_alone]
    seconds = np.full(len(evidence.frame), np.nan)
    size = np.searchsorted(evidence.sizes[dataset], evidence.column("n")[rows])
    seed = np.searchsorted(evidence.seeds[dataset], evidence.column("seed")[rows])
    for row, target in zip(rows, targets[size, seed], strict=True):
        curve = evidence.arrays(row)
        if "test_nll" not in curve or np.isnan(target):
            continue
        evaluations_at_target = np.flatnonzero(curve["test_nll"] <= target)
        # Without such an evaluation, the last one counts.
        evaluation = evaluations_at_target[0] if len(evaluations_at_target) else -1
        # The first evaluation is at iteration 0, whose logarithm is not finite.
        iterations = max(float(curve["evaluated_at"][evaluation]), 1.0)
        share_of_run = iterations / float(evidence.column("iterations")[row])
        seconds[row] = share_of_run * float(evidence.column("seconds")[row])
    name = f"log seconds, {estimator_label(estimator, samples)}"
    return evidence.line(name, dataset, rows, np.log(seconds))


def _timed_runs(evidence: Evidence) -> pd.DataFrame:
    """Return the timed runs of uPS and bMC, with a row each.

    The column `log_seconds` has the logarithm of the seconds per step. The column `alone` says
    whether the run had its device to itself; it is False where that is not known.
    """
    rows = evidence.candidates
    is_timed = rows["role"].isin(["curve", "timing"]) & rows["estimator"].isin(["ups", "bmc"])
    is_timed &= (rows["seconds"] > 0) & (rows["iterations"] > 0)
    runs = rows.loc[is_timed, TIMING_COLUMNS].drop_duplicates("key")
    log_seconds = np.log(runs["seconds"] / runs["iterations"])
    return runs.assign(log_seconds=log_seconds, alone=runs["alone"].eq(True))


def _groups(frame: pd.DataFrame, by: str | list[str]) -> Iterable[tuple[Any, pd.DataFrame]]:
    """Return the groups of rows with equal values in the columns `by`, sorted by these values.

    Each item is a pair of the values and the rows of the group.
    """
    return frame.groupby(by, observed=True)


def _origin(rows: pd.DataFrame) -> Origin:
    """Return which commands and commits computed these rows."""
    return origin_of(rows["command"], rows["commit"])
