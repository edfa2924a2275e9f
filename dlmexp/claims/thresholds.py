"""Every number that turns measurements into verdicts, with its reason. Nothing else in `claims` decides by one."""

ALPHA = 0.05
"""Level of every test. A claim to be lowest needs a significant difference from each rival: all of several tests must
reject, so the chance of a false `holds` is at most ALPHA and no correction is needed (intersection-union test)."""

MIN_REPETITIONS = 3
"""Fewer paired repetitions give no usable deviation (with two, |t| must exceed 12.7): figures are shown, no verdict."""

NLL_MARGIN = 0.02
"""NLLs this close are `comparable`: the probability given to a test point differs by 2 %. In the paper's plots the
lines of such methods lie on each other."""

ERROR_MARGIN = 0.01
"""No loss in error rate: at most one more mistake in a hundred. On 1000 test rows the binomial deviation of an error
rate of 10 % is just that."""

MRE_MARGIN = 0.02
"""No loss in mean relative error: two hundredths of a count, for a measure that lies between 0.1 and 0.6."""

MATCH_SHARE = 0.1
"""An estimator `matches` another where they differ by at most a tenth of the gap between the best and the worst in the
same plot: the paper judged by eye, on axes that this gap sets."""

MATCH_FLOOR = 0.002
"""... and a tenth of a gap below 0.02 nats is no reason to call two curves different."""

AGREE_SHARE = 0.8
"""`selects beta > 1`: in at least four repetitions out of five; in at most one it does not; in between is mixed."""

ABOUT_ONE = 0.2
"""Condition (i), g.G/|G|^2, is `about 1` within 20 %: the paper reads 'roughly 1' off histograms a few tenths wide."""

ABOUT_TWO = (1.0, 3.0)
"""`Approximately 2` rejected tries per accepted one, to the nearest whole number or its neighbour."""

ALMOST_ALL = 0.95
"""`Almost all runs` converge: 19 in 20."""

NOT_ALMOST_ALL = 0.90
"""Below nine in ten nobody would say `almost all`; between this and ALMOST_ALL the verdict is mixed."""

COST_MARGIN = 1.1
"""uPS costs `no more` than bMC where a step takes at most 10 % longer: timings of one step scatter by as much."""

BOUND_TOLERANCE = 1e-9
"""Rounding allowed when a derivative is held against its bound."""
