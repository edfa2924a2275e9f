"""Every number that turns measurements into verdicts, with its reason. Nothing else in `claims` decides by one."""

ALPHA = 0.05
"""Level of every test, after Holm's correction over the sizes of a dataset: the chance that any size is falsely called
supported is at most ALPHA. A claim to be lowest needs a significant difference from each rival: all of several tests
must reject, so among rivals no correction is needed (intersection-union test)."""

MIN_REPETITIONS = 3
"""Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7): figures are shown, no verdict."""

HALF = 0.5
"""A claim holds on a dataset where it is supported at half of the sizes or more, and fails where it is contradicted at
half or more (docs/SPEC.md, section 8). `Most` is more than half."""

MARGIN_SHARE = 0.05
"""`Comparable`, `no loss`, `matches`: within 5 % of what the model explains, that is, of the metric of the trivial
predictor minus that of ELBO at the same size. It has no unit, so one number serves NLL, error rate and MRE on all data;
absolute margins call 29 % worse `no worse` where the metric is small."""

PROBABILITY_MARGIN = 0.01
"""Calibration errors (ECE, and how far coverage is from nominal) are shares of rows, without a unit, and the trivial
predictor's are near 0, so it explains nothing of them: one percentage point."""

RATIO_MARGIN = 0.05
"""Gradient statistics are compared as ratios: an interval wider than 5 % may hide a difference."""

AGREE_SHARE = 0.8
"""`selects beta > 1`: in at least four repetitions out of five; in at most one it does not; in between is mixed."""

COUNTS_NEEDED = 3
"""Claim 9 speaks of three datasets of four: with fewer than three at hand it is undecidable."""

ABOUT_ONE = 0.2
"""Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a few tenths wide."""

ABOUT_TWO = (1.0, 3.0)
"""`Approximately 2` rejected tries per accepted one, to the nearest whole number or its neighbour."""

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
