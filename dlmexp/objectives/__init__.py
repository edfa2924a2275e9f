"""Objectives by name: `base` says what one is, `paper` has those of the paper.

A new one is a file that registers it (`base` shows how), its line among the imports here, and a YAML file in
`conf/method` for each of its variants."""

from dlmexp.objectives.base import OBJECTIVES, Objective
from dlmexp.objectives.paper import ELBO, EXACT, FITC, LOG_DLM, POWER_EP, SQ_DLM

__all__ = ["ELBO", "EXACT", "FITC", "LOG_DLM", "OBJECTIVES", "POWER_EP", "SQ_DLM", "Objective"]
