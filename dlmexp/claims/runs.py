"""Claims about runs: 18 (almost every run converges) and 19 (what a step of uPS costs)."""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from dlmexp.claims.claim import PAPER, Part, claim
from dlmexp.claims.evidence import LINE, Evidence, Rows, made_by
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


@claim(
    18, "Almost every run converges (of deterministic objectives; sampled and minibatch ones are counted apart).",
    "supplement A", sum_up=pooled,
)  # fmt: skip
def converged_share(evidence: Evidence) -> Iterator[Part]:
    """Fits with a stopping rule; a failed one has not converged. Runs for a set number of iterations and closed forms
    have nothing to converge."""
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
            says, dataset, q, verdict,
            beside=says == SAMPLED, figures={"converged": converged, "runs": len(several)},
            repetitions=several["seed"].nunique(), **made_by((Rows(several), np.arange(len(several)))),
            reason=f"the preset ends runs early; {told}" if evidence.capped else told,
        )  # fmt: skip


REJECTION = "uPS-{0:g} by rejection is slower than bMC-{0:g}"
OURS = "uPS-{0:g} without rejection costs no more than bMC-{0:g}"
SHARED_DEVICE = "no two runs that could be compared had the device to themselves"
SAME = ["device", "host", "commit", "n", "variant", "beta", "evaluate", "max_iterations", "epochs", "seed"]
BATCH = [
    "host", "device", "dataset", "data", "n", "M", "kernel", "objective", "variant", "form", "parameterisation",
    "estimator", "samples", "sampler", "lr", "minibatch", "max_iterations", "evaluate", "command", "commit",
]  # fmt: skip
"""What the cells of a batch have in common, and those of two batches at one time have not."""


@claim(
    19, "uPS, with the paper's rejection sampler, is significantly slower than bMC (ours, without rejection, is "
    "counted apart).", "section 6.2", "sampler", "count-learning",
)  # fmt: skip
def cost(evidence: Evidence) -> Iterator[Part]:
    """Seconds per iteration of uPS against bMC at the same S, data and device. The seeds of a batch share its clock, so
    their times say nothing about scatter: only the ratio is judged."""
    frame = evidence.candidates[[*SAME, *LINE, "role", "sampler", "key", "seconds", "iterations", "command"]]
    frame = frame[frame["role"].isin(TIMED) & frame["estimator"].isin(["ups", "bmc"])]
    frame = frame[(frame["seconds"] > 0) & (frame["iterations"] > 0)].drop_duplicates("key")
    kind = np.where(frame["estimator"] == "bmc", "bmc", np.where(frame["sampler"] == "rejection", REJECTION, OURS))
    alone = frame["key"].isin(evidence.alone())
    frame = frame.assign(kind=kind, alone=alone, log=np.log(frame["seconds"] / frame["iterations"]))
    yielded = False
    for (dataset, q, samples), several in frame.groupby(["dataset", "parameterisation", "samples"], observed=True):
        for says in (REJECTION, OURS):
            ours, bmc = several[several["kind"] == says], several[several["kind"] == "bmc"]
            if len(ours) and len(bmc):
                yielded = True
                yield from _ratios(says.format(samples), str(dataset), str(q), ours, bmc, says == OURS)
    if not yielded:
        yield Part(REJECTION.format(10), "abalone", "whitened")


def _ratios(says: str, dataset: str, q: str, ours: pd.DataFrame, bmc: pd.DataFrame, beside: bool) -> Iterator[Part]:
    """How much longer a step takes than with bMC, on each device over the settings and seeds that both have alone."""
    both = ours[ours["alone"]].merge(bmc[bmc["alone"]], on=SAME, suffixes=("", "_bmc"))
    limits = (0.0, COST_MARGIN) if beside else (COST_MARGIN, math.inf)
    for device, pairs in both.groupby("device", observed=True):
        ratio, seeds = math.exp((pairs["log"] - pairs["log_bmc"]).mean()), pairs["seed"].nunique()
        yield Part(
            f"{says}, on {device}", dataset, q, between(ratio, *limits, seeds), figures={"ratio": ratio},
            repetitions=seeds, reason=f"a step takes {ratio:.2f} times as long", beside=beside,
            **made_by((Rows(pairs), np.arange(len(pairs)))),
        )  # fmt: skip
    if both.empty:
        yield Part(says, dataset, q, Verdict.UNDECIDABLE, reason=SHARED_DEVICE, beside=beside)


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
    since = pd.to_datetime(pd.Series(list(times)), utc=True) - pd.Timestamp(0, tz="UTC")
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
