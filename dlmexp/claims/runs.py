"""Claims about runs: 18 (almost every run converges) and 19 (what a step of uPS costs)."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from dlmexp.claims.claim import PAPER, Part, claim
from dlmexp.claims.evidence import Evidence, made_by
from dlmexp.claims.rules import Verdict, between, by_share
from dlmexp.claims.thresholds import ALMOST_ALL, COST_MARGIN, NOT_ALMOST_ALL, OVERLAP_SECONDS

DETERMINISTIC = "almost every run of a deterministic objective converges"
SAMPLED = "(counted apart) almost every run of a sampled or minibatch objective converges"


def pooled(parts: list[Part]) -> Verdict:
    """By the share over all runs of deterministic objectives, as the paper counts ('across algorithms and datasets').
    A dataset on which it fails is not hidden by larger ones: then it is mixed."""
    told = {part.verdict for part in parts}
    if not parts or Verdict.UNDECIDABLE in told:
        return Verdict.UNDECIDABLE if parts else Verdict.NOT_RUN
    converged, runs = (sum(part.figures[name] for part in parts) for name in ("converged", "runs"))
    verdict = by_share(converged / runs, ALMOST_ALL, NOT_ALMOST_ALL)
    return Verdict.MIXED if verdict is Verdict.HOLDS and Verdict.FAILS in told else verdict


@claim(18, "supplement A", sum_up=pooled)
def converged_share(evidence: Evidence) -> Iterator[Part]:
    """Almost every run converges (of deterministic objectives; sampled and minibatch ones are counted apart).

    Fits with a stopping rule; a failed one has not converged. Runs for a set number of iterations and closed forms
    have nothing to converge.
    """
    frame = evidence.candidates
    known = frame["dataset"].isin([*PAPER, *evidence.stands_for])
    ruled = frame["window"].notna() & frame["max_iterations"].notna() & frame["role"].isin(["fit", "curve"])
    frame = frame[known & ruled].drop_duplicates("key")
    deterministic = frame["minibatch"].isna() & frame["samples"].isna()
    frame = frame.assign(says=np.where(deterministic, DETERMINISTIC, SAMPLED), converged=frame["converged"].eq(True))
    for (dataset, q, says), several in frame.groupby(["dataset", "parameterisation", "says"], observed=True):
        converged, failed = int(several["converged"].sum()), int((several["status"] != "done").sum())
        verdict = by_share(converged / len(several), ALMOST_ALL, NOT_ALMOST_ALL)
        verdict = Verdict.UNDECIDABLE if evidence.capped else verdict
        told = f"{converged} of {len(several)} runs converged" + (f", {failed} failed" if failed else "")
        yield Part(
            str(says), str(dataset), str(q), verdict, beside=says == SAMPLED,
            figures={"converged": converged, "runs": len(several)},
            repetitions=several["seed"].nunique(), **made_by(several),
            reason=f"the preset ends runs early; {told}" if evidence.capped else told,
        )  # fmt: skip


REJECTION = "uPS-{0:g} by rejection is slower than bMC-{0:g}"
OURS = "uPS-{0:g} without rejection costs no more than bMC-{0:g}"
SAME = ["device", "host", "commit", "n", "variant", "beta", "evaluate", "max_iterations", "epochs", "seed"]
BATCH = [
    "host", "device", "dataset", "data", "n", "M", "kernel", "objective", "variant", "form", "parameterisation",
    "estimator", "samples", "sampler", "lr", "minibatch", "max_iterations", "evaluate", "command", "commit",
]  # fmt: skip
"""What the cells of a batch have in common, and those of two batches at one time have not."""


@claim(19, "section 6.2", "sampler", "count-learning")
def cost(evidence: Evidence) -> Iterator[Part]:
    """uPS, with the paper's rejection sampler, is significantly slower than bMC (ours, without rejection, is counted
    apart).

    Seconds per iteration of uPS against bMC at the same S, data and device. The seeds of a batch share its clock, so
    their times say nothing about scatter: only the ratio is judged.
    """
    frame = evidence.candidates[[*SAME, "dataset", "parameterisation", "samples", "role", "estimator", "sampler", "key",
                                 "seconds", "iterations", "command"]]  # fmt: skip
    frame = frame[frame["role"].isin(TIMED) & frame["estimator"].isin(["ups", "bmc"])]
    frame = frame[(frame["seconds"] > 0) & (frame["iterations"] > 0)].drop_duplicates("key")
    frame = frame.assign(log=np.log(frame["seconds"] / frame["iterations"]), alone=frame["key"].isin(evidence.alone()))
    bmc, ups = (frame[frame["estimator"] == name] for name in ("bmc", "ups"))
    ups = ups.assign(says=np.where(ups["sampler"] == "rejection", REJECTION, OURS))
    where = ["dataset", "parameterisation", "samples"]
    pairs = ups[ups["alone"]].merge(
        bmc.loc[bmc["alone"], [*where, *SAME, "log"]], on=[*where, *SAME], suffixes=("", "_bmc")
    )
    together = dict(list(pairs.groupby([*where, "says"], observed=True)))
    run = ups.merge(bmc[where].drop_duplicates(), on=where)[[*where, "says"]].drop_duplicates()
    if run.empty:
        yield Part(REJECTION.format(10), "abalone", "whitened")
    for dataset, q, samples, says in run.sort_values([*where, "says"]).itertuples(index=False):
        limits = (0.0, COST_MARGIN) if says == OURS else (COST_MARGIN, math.inf)
        here = together.get((dataset, q, samples, says), pairs[:0])
        for device, some in here.groupby("device", observed=True):
            ratio, seeds = math.exp((some["log"] - some["log_bmc"]).mean()), some["seed"].nunique()
            part = Part(
                f"{says.format(samples)}, on {device}", dataset, q, between(ratio, *limits, seeds), **made_by(some)
            )
            part.beside, part.figures, part.repetitions = says == OURS, {"ratio": ratio}, seeds
            part.reason = f"a step takes {ratio:.2f} times as long"
            yield part
        if here.empty:
            reason = "no two runs that could be compared had the device to themselves"
            yield Part(says.format(samples), dataset, q, Verdict.UNDECIDABLE, reason=reason, beside=says == OURS)


TIMED = ["curve", "timing"]  # roles


def alone_on_device(everything: pd.DataFrame) -> set[str]:
    """Keys of timed runs whose batch overlaps with no other on its machine and device, whatever its setting.

    A batch ended when its last record was written, and took at least as long as the seconds of its cells together.
    Runs that left no record here can't be seen.
    """
    known = everything[everything["seconds"].gt(0) & everything["time"].notna()].drop_duplicates("key")
    batch = np.zeros(len(known), dtype=np.int64)
    for name in BATCH:
        codes = pd.factorize(known[name])[0]
        batch = pd.factorize(batch * (codes.max() + 2) + codes)[0]
    codes, times = pd.factorize(known["time"])
    since = pd.to_datetime(pd.Series(list(times)), utc=True, errors="coerce") - pd.Timestamp(0, tz="UTC")
    ends = since.dt.total_seconds().to_numpy()[codes]
    frame = pd.DataFrame({"end": ends, "seconds": known["seconds"].to_numpy(), "batch": batch})
    spans = frame.groupby("batch").agg(end=("end", "max"), seconds=("seconds", "sum"))
    end, begin = spans["end"].to_numpy(), (spans["end"] - spans["seconds"]).to_numpy()
    first = np.unique(batch, return_index=True)[1]
    place = known[["host", "device"]].iloc[first].groupby(["host", "device"], observed=True, dropna=False).ngroup()
    timed = known["role"].isin(TIMED) & known["estimator"].isin(["ups", "bmc"])
    own = (timed & ~known["alone"].eq(False)).to_numpy()
    free = []
    for one in np.unique(batch[own]):
        overlap = np.minimum(end, end[one]) - np.maximum(begin, begin[one])
        overlap[(place.to_numpy() != place.iloc[one]) | (np.arange(len(end)) == one)] = 0.0
        free += [one] if overlap.max() <= OVERLAP_SECONDS else []
    return set(known["key"].to_numpy()[own & np.isin(batch, free)])
