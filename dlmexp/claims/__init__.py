"""What the paper says in words, checked against the tidy table: 22 claims, each with a verdict and its numbers.

The package is a function as well: `dlmexp.claims("results")` gives the verdicts as a table."""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, folder: str = "results", protocol: str | None = None) -> Any:
        """The verdicts on the records of a results folder as a DataFrame: one row per claim and protocol (of all that
        were run, or of one)."""
        from dlmexp.claims.judge import verdicts

        return verdicts(folder, protocol)


sys.modules[__name__].__class__ = _Callable
