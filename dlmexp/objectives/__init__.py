"""Objectives by name. A new one is a file here and a line in the registry (and a YAML file in `conf/method`)."""

from dlmexp.objectives.base import Objective
from dlmexp.objectives.elbo import ELBO
from dlmexp.objectives.fitc import FITC
from dlmexp.objectives.log_dlm import LOG_DLM
from dlmexp.objectives.sq_dlm import SQ_DLM

OBJECTIVES: dict[str, Objective] = {objective.name: objective for objective in (ELBO, LOG_DLM, SQ_DLM, FITC)}

__all__ = ["OBJECTIVES", "Objective"]
