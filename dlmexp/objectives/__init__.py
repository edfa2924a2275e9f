"""Objectives by name.

A new one is a file that registers it (`base` shows how), its line among the imports here, and a YAML file in
`conf/method` for each of its variants."""

from dlmexp.objectives.base import OBJECTIVES, Objective
from dlmexp.objectives.baselines import ELBO, EXACT, FITC, POWER_EP
from dlmexp.objectives.dlm import LOG_DLM, SQ_DLM

__all__ = ["ELBO", "EXACT", "FITC", "LOG_DLM", "OBJECTIVES", "POWER_EP", "SQ_DLM", "Objective"]
