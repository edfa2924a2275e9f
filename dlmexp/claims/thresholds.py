"""Every number that turns measurements into verdicts, with its reason. Nothing else in `claims` decides by one."""

ALPHA = 0.05
"""Level of every test, after Holm's correction over the sizes of a dataset: the chance that any size is falsely called
supported is at most ALPHA. A claim to be lowest needs a significant difference from each rival: all of several tests
must reject, so among rivals no correction is needed (intersection-union test)."""

MIN_REPETITIONS = 3
"""Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7): numbers are shown, no verdict."""

HALF = 0.5
"""A claim holds on a dataset where it is supported at half of the sizes or more, and fails where it is contradicted at
half or more (docs/SPEC.md, section 8). `Most` is more than half."""

EXPLAINED_SHARE = 0.05
"""The margin is at most 5 % of what the model explains: of the trivial predictor's metric minus ELBO's at that size. It
has no unit, so one number serves NLL, error rate and MRE on all data."""

METRIC_SHARE = 0.10
"""... and at most 10 % of ELBO's metric itself, where 0 is the best value: where ELBO explains nearly all (ringnorm:
NLL 0.07 of 0.69), 5 % of that would call half as much again `comparable`."""

DENSITY = ("regression", "nll")
"""The task and metric to which METRIC_SHARE does not apply: the NLL of a density has no zero, and may be negative."""

PROBABILITY_MARGIN = 0.01
"""Calibration errors (ECE, and how far coverage is from nominal) are shares of rows, without a unit, and the trivial
predictor's are near 0, so it explains nothing of them: one percentage point."""

RATIO_MARGIN = 0.05
"""Gradient statistics are compared as ratios: a difference of less than 5 % is none."""

AGREE_SHARE = 0.8
"""`selects beta > 1`: in at least four repetitions out of five; in at most one it does not; in between is mixed."""

COUNTS_NEEDED = 3
"""Claim 9 speaks of three datasets of four: with fewer than three it says how many of those seen are so."""

ABOUT_ONE = 0.2
"""Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a few tenths wide."""

ABOUT_TWO = (1.0, 3.0)
"""`Approximately 2` rejected tries per accepted one, to the nearest whole number or its neighbour."""

FIRST_ITERATIONS = 100
"""`After the first iterations`: a rejection sampler starts at the prior, where most tries fail. Rates are kept for
every 100 steps; the first is left out."""

ALMOST_ALL = 0.95
"""`Almost all runs` converge: 19 in 20."""

NOT_ALMOST_ALL = 0.90
"""Below nine in ten nobody would say `almost all`; between this and ALMOST_ALL the verdict is mixed."""

COST_MARGIN = 1.1
"""uPS costs `no more` than bMC where a step takes at most 10 % longer: timings of one step scatter by as much. `Slower`
needs more than that."""

OVERLAP_SECONDS = 1.0
"""Two runs shared a device if their times overlap by more than this. A record gives the time of its end in whole
seconds, so runs that follow each other may seem to overlap by up to one."""

BOUND_TOLERANCE = 1e-9
"""Rounding allowed when a derivative is held against its bound."""

ROWS = {
    "song": 515345, "banana": 5300, "thyroid": 3772, "twonorm": 7400, "ringnorm": 7400, "abalone": 4177,
    "peds1_dir0": 4000, "peds1_dir1": 4000, "peds1_dir2": 4000,
}  # fmt: skip
"""Rows of the paper's datasets (docs/SPEC.md, section 5), where the share of test rows depends on them."""


def overlap(dataset: str, task: str, largest: int) -> float:
    """Test rows / other rows of a repetition, which Nadeau and Bengio's correction needs. `dataset` is one of the
    paper's, or what it stands in for. Airline-type data train on all but 100 000 rows, the `largest` size."""
    if dataset == "airline":
        return 100_000 / largest
    if dataset == "song":
        return 10_000 / (ROWS["song"] - 10_000)
    if task == "regression":
        return 1 / 3
    return 1000 / max(ROWS.get(dataset, 2 * largest) - 1000, 1000)
