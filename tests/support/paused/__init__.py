"""A plugin for tests that wait for training: it takes about the same time on an idle and on a busy
machine."""

import time
from dataclasses import dataclass

from torch import Tensor

from dlmexp.core.estimators import ESTIMATORS, Estimator
from dlmexp.core.estimators.draws import Draws
from dlmexp.core.likelihoods import Likelihood


@ESTIMATORS.register("paused")
@dataclass(frozen=True)
class Paused(Estimator):
    """The log loss itself, after a pause."""

    pause: float  # in seconds

    def __call__(
        self, likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, draws: Draws | None = None
    ) -> Tensor:
        time.sleep(self.pause)
        return likelihood.log_loss(mu, v, y)
