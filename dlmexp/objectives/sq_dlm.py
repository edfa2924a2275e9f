"""Square-loss DLM: 1/2 (mu - y)^2 per row and beta/2 |m|^2, which depends on the mean of q alone (section 2)."""

from dlmexp.gp.square import collapsed_square
from dlmexp.objectives.base import Objective

SQ_DLM = Objective("sq_dlm", collapsed=collapsed_square, predicts_variance=False)
