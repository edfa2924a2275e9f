"""The NLL of the true class probabilities, where data is drawn from a definition (`dlmexp.data.parsers.drawn`)."""

from functools import cache

import numpy as np
from scipy.stats import ncx2, norm

FEATURES, SQUARE = 20, 4.0  # number of features, and |a|^2 of Breiman's class mean a
TOP = SQUARE / 6 + FEATURES * np.log(2)  # of ringnorm's log odds
# Dataset -> log odds of class 1 as a function of one number s, and the distribution of s in class 1 and in class 0.
# twonorm, N(a, I) and N(-a, I): s = 2 a.x. ringnorm, N(a, I) and N(0, 4 I): s = |x - 4/3 a|^2.
LOG_ODDS = {
    "twonorm_drawn": (lambda s: s, norm(2 * SQUARE, 2 * SQUARE**0.5), norm(-2 * SQUARE, 2 * SQUARE**0.5)),
    "ringnorm_drawn": (lambda s: TOP - 3 / 8 * s, ncx2(FEATURES, SQUARE / 9), ncx2(FEATURES, SQUARE * 4 / 9, scale=4)),
}


@cache
def bayes_nll(dataset: str) -> float:
    """Expected log loss of the true probabilities, in nats per row, by quadrature; NaN for data that is not drawn. Both
    classes are equally frequent."""
    if dataset not in LOG_ODDS:
        return float("nan")
    odds, one, zero = LOG_ODDS[dataset]
    losses = one.expect(lambda s: np.logaddexp(0, -odds(s))), zero.expect(lambda s: np.logaddexp(0, odds(s)))
    return float(sum(losses) / 2)
