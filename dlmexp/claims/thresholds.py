"""Every number that turns measurements into verdicts, with its reason. Nothing else in `claims` decides by one."""

from dlmexp.catalogue import entries

# Level of every test, after Holm's correction over the sizes of a dataset: the chance that any size is falsely called
# supported. To be lowest needs a significant difference from each rival; all tests must reject, so among rivals no
# correction is needed (intersection-union test).
ALPHA = 0.05
# Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7): numbers are shown, no verdict.
MIN_REPETITIONS = 3
# A claim holds on a dataset where it is supported at half of the sizes or more, and fails where it is contradicted at
# half or more (docs/SPEC.md, section 8).
HALF = 0.5
# The margin is at most 5 % of what the model explains, the trivial predictor's metric minus ELBO's at that size: that
# has no unit, so it serves NLL, error rate and MRE on all data. It is at most 10 % of ELBO's metric itself, where 0 is
# the best value: where ELBO explains nearly all (ringnorm: NLL 0.07 of 0.69), 5 % of that is half of the metric.
EXPLAINED_SHARE, METRIC_SHARE = 0.05, 0.10
# The task and metric without METRIC_SHARE: the NLL of a density has no zero, and may be negative.
DENSITY = ("regression", "nll")
# ECE, and how far coverage is from nominal, are shares of rows, of which the trivial predictor explains nothing: one
# percentage point.
PROBABILITY_MARGIN = 0.01
# Gradient statistics are compared as ratios: a difference of less than 5 % is none.
RATIO_MARGIN = 0.05
# `Selects beta > 1`: in at least four repetitions out of five; in at most one it does not; in between is mixed.
AGREE_SHARE = 0.8
# Claim 9 speaks of three datasets of four: with fewer than three it says how many of those seen are so.
COUNTS_NEEDED = 3
# Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a few tenths wide.
ABOUT_ONE = 0.2
# `Approximately 2` rejected tries per accepted one, to the nearest whole number or its neighbour.
ABOUT_TWO = (1.0, 3.0)
# A rejection sampler starts at the prior, where most tries fail. Rates are kept for every 100 steps; the first is out.
FIRST_ITERATIONS = 100
# `Almost all runs` converge: 19 in 20. Below nine in ten nobody would say so; in between the verdict is mixed.
ALMOST_ALL, NOT_ALMOST_ALL = 0.95, 0.90
# uPS costs `no more` than bMC where a step takes at most 10 % longer, as timings scatter; `slower` needs more.
COST_MARGIN = 1.1
# Rounding allowed when a derivative is held against its bound.
BOUND_TOLERANCE = 1e-9


def overlap(dataset: str, task: str, largest: int) -> float:
    """Test rows / other rows of a repetition, which Nadeau and Bengio's correction needs. `dataset` is one of the
    paper's, or what it stands in for. Airline-type data train on all but 100 000 rows, the `largest` size."""
    rows = entries("dataset").get(dataset, {}).get("rows") or 2 * largest
    if dataset == "airline":
        return 100_000 / largest
    if dataset == "song":
        return 10_000 / (rows - 10_000)
    return 1 / 3 if task == "regression" else 1000 / max(rows - 1000, 1000)
