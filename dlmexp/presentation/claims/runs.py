"""Claims about runs: the rejection sampler (16), convergence (18) and the cost of a step (19)."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from dlmexp.common.catalogue import PAPER
from dlmexp.presentation.claims import rules
from dlmexp.presentation.claims.claim import Origin, Part, claim
from dlmexp.presentation.claims.evidence import Evidence, origin_of
from dlmexp.presentation.claims.rules import Verdict, between, by_share


@claim(
    16,
    "supplement B",
    "sampler",
    text="The rejection sampler rejects about 2 tries on average after the first iterations.",
)
def rejections(evidence: Evidence) -> Iterator[Part]:
    """Compute rejected tries per accepted one, over the blocks of 100 steps after the first.

    A record without such blocks has one rate for all iterations.
    """
    statement = "the rejection sampler rejects about 2 tries per sample"
    frame = evidence.candidates
    by_rejection = frame["sampler"] == "rejection"
    ups = frame["estimator"] == "ups"
    runs = frame[by_rejection & ups & (frame["acceptance"] > 0)].drop_duplicates("key")
    if runs.empty:
        yield Part(statement, "abalone", "whitened")
    for (dataset, q), rows in _groups(runs, ["dataset", "parameterisation"]):
        part = Part(statement, str(dataset), str(q), origin=_origin(rows))
        overall = float(_rejected_per_accepted(rows["acceptance"]).mean())
        part.figures = {"rejected_over_all_iterations": overall}
        part.repetitions = rows["seed"].nunique()
        later = _rejected_later(evidence, rows)
        if len(later):
            mean = float(later.mean())
            part.figures["rejected_per_accepted"] = mean
            part.verdict = between(mean, *rules.ABOUT_TWO, len(later))
            part.reason = f"{mean:.3g} rejected per accepted after {rules.FIRST_ITERATIONS} steps"
        else:
            part.verdict = Verdict.UNDECIDABLE
            part.reason = (
                f"rates by {rules.FIRST_ITERATIONS} steps were not recorded; "
                f"{overall:.3g} over all iterations"
            )
        yield part


def _rejected_later(evidence: Evidence, rows: pd.DataFrame) -> np.ndarray:
    """Return rejected tries per accepted one after the first block, by run that has more blocks."""
    rejected = []
    for key in rows["key"]:
        # Rates of acceptance by block of `FIRST_ITERATIONS` steps.
        rates = evidence.results.arrays(key).get("acceptance", np.array([]))
        later = rates[1:]
        if len(later):
            rejected.append(_rejected_per_accepted(later.mean()))
    return np.array(rejected)


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


def pooled(parts: list[Part]) -> Verdict:
    """Sum up by the share over all runs of deterministic objectives, as the paper counts.

    It counts 'across algorithms and datasets'. A dataset on which it fails is not hidden by larger
    ones: then it is mixed.
    """
    if not parts:
        return Verdict.NOT_RUN
    verdicts = {part.verdict for part in parts}
    if Verdict.UNDECIDABLE in verdicts:
        return Verdict.UNDECIDABLE
    converged = sum(part.figures["converged"] for part in parts)
    runs = sum(part.figures["runs"] for part in parts)
    verdict = by_share(converged / runs, rules.ALMOST_ALL, rules.NOT_ALMOST_ALL)
    if verdict is Verdict.HOLDS and Verdict.FAILS in verdicts:
        return Verdict.MIXED
    return verdict


@claim(
    18,
    "supplement A",
    text=(
        "Almost every run converges (of deterministic objectives; sampled and minibatch ones are "
        "counted apart)."
    ),
    sum_up=pooled,
)
def converged_share(evidence: Evidence) -> Iterator[Part]:
    """Count the fits with a stopping rule that met it; a failed one has not converged.

    Runs for a set number of iterations and closed forms have nothing to converge.
    """
    runs = _runs_with_stopping_rule(evidence)
    deterministic = runs["minibatch"].isna() & runs["samples"].isna()
    runs = runs.assign(statement=np.where(deterministic, DETERMINISTIC, SAMPLED))
    for (dataset, q, statement), rows in _groups(
        runs, ["dataset", "parameterisation", "statement"]
    ):
        converged = int(rows["converged"].eq(True).sum())
        failed = int((rows["status"] != "done").sum())
        verdict = by_share(converged / len(rows), rules.ALMOST_ALL, rules.NOT_ALMOST_ALL)
        reason = f"{converged} of {len(rows)} runs converged"
        if failed:
            reason += f", {failed} failed"
        if evidence.capped:
            verdict = Verdict.UNDECIDABLE
            reason = f"the preset ends runs early; {reason}"
        yield Part(
            str(statement),
            str(dataset),
            str(q),
            verdict,
            reason=reason,
            supplementary=statement == SAMPLED,
            figures={"converged": converged, "runs": len(rows)},
            repetitions=rows["seed"].nunique(),
            origin=_origin(rows),
        )


def _runs_with_stopping_rule(evidence: Evidence) -> pd.DataFrame:
    """Return the runs with a stopping rule on the paper's data and stand-ins, a row each."""
    frame = evidence.candidates
    known = frame["dataset"].isin([*PAPER, *evidence.stands_for])
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
)
def cost(evidence: Evidence) -> Iterator[Part]:
    """Compare seconds per iteration of uPS and bMC at the same S, data and device.

    The seeds of a batch share its clock, so their times say nothing about scatter: only the ratio
    is judged.
    """
    runs = _timed_runs(evidence)
    bmc = runs[runs["estimator"] == "bmc"]
    ups = runs[runs["estimator"] == "ups"]
    by_rejection = ups["sampler"] == "rejection"
    ups = ups.assign(statement=np.where(by_rejection, REJECTION, WITHOUT_REJECTION))

    # What was run of both, and, of that, the pairs of runs that had the device to themselves.
    both = ups.merge(bmc[TIMED].drop_duplicates(), on=TIMED)[[*TIMED, "statement"]]
    bmc_alone = bmc.loc[bmc["alone"], [*TIMED, *SAME_WORK, "log_seconds"]]
    pairs = ups[ups["alone"]].merge(bmc_alone, on=[*TIMED, *SAME_WORK], suffixes=("", "_bmc"))
    pairs_by_part = dict(list(_groups(pairs, [*TIMED, "statement"])))

    if both.empty:
        yield Part(REJECTION.format(10), "abalone", "whitened")
    parts = both.drop_duplicates().sort_values([*TIMED, "statement"])
    for dataset, q, samples, statement in parts.itertuples(index=False):
        rows = pairs_by_part.get((dataset, q, samples, statement))
        if rows is None:
            yield Part(
                statement.format(samples),
                dataset,
                q,
                Verdict.UNDECIDABLE,
                reason="no two runs that could be compared had the device to themselves",
                supplementary=statement == WITHOUT_REJECTION,
            )
            continue
        for device, of_device in _groups(rows, "device"):
            label = f"{statement.format(samples)}, on {device}"
            part = Part(label, dataset, q, supplementary=statement == WITHOUT_REJECTION)
            yield _with_cost_judged(part, of_device)


def _timed_runs(evidence: Evidence) -> pd.DataFrame:
    """Return the runs of uPS and bMC that were timed, with the logarithm of seconds per step."""
    frame = evidence.candidates
    timed = frame["role"].isin(["curve", "timing"]) & frame["estimator"].isin(["ups", "bmc"])
    timed &= (frame["seconds"] > 0) & (frame["iterations"] > 0)
    runs = frame.loc[timed, TIMING_COLUMNS].drop_duplicates("key")
    return runs.assign(
        log_seconds=np.log(runs["seconds"] / runs["iterations"]), alone=runs["alone"].eq(True)
    )


def _with_cost_judged(part: Part, pairs: pd.DataFrame) -> Part:
    """Judge the ratio of seconds per step over pairs of runs of uPS and bMC."""
    ratio = math.exp((pairs["log_seconds"] - pairs["log_seconds_bmc"]).mean())
    costs_no_more = (0.0, rules.COST_MARGIN)
    is_slower = (rules.COST_MARGIN, math.inf)
    limits = costs_no_more if part.supplementary else is_slower
    part.origin = _origin(pairs)
    part.repetitions = pairs["seed"].nunique()
    part.verdict = between(ratio, *limits, part.repetitions)
    part.figures = {"ratio": ratio}
    part.reason = f"a step takes {ratio:.2f} times as long"
    return part


def _groups(frame: pd.DataFrame, by: str | list[str]) -> Any:
    """Return the groups of rows that agree in some columns, with their values, sorted by these."""
    return frame.groupby(by, observed=True)


def _origin(rows: pd.DataFrame) -> Origin:
    return origin_of(rows["command"], rows["commit"])
