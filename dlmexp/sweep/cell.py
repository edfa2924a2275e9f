"""A cell: the smallest thing with a result, and its key."""

import hashlib
import json
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

KEY_VERSION = 1  # raised when the meaning of a field changes, so that old records are not taken for new ones


@dataclass(frozen=True, order=True)
class Cell:
    """Everything that changes a result, and nothing else. Values that do not apply are None."""

    kind: str  # fit | gradient
    dataset: str
    data: str  # checksum of the data
    split: str  # kind and version of the split
    task: str
    likelihood: str
    kernel: str
    ard: bool
    mean: str
    M: int
    n: int
    objective: str
    variant: str
    form: str  # collapsed | explicit
    parameterisation: str
    estimator: str
    samples: int | None
    nu: float | None
    nodes: int | None
    sampler: str | None
    lr: float
    minibatch: int | None
    window: int | None
    tolerance: float | None
    max_iterations: int | None
    epochs: int | None
    evaluate: str
    dtype: str
    seed: int
    beta: float | None
    base: str | None = None  # key of the ELBO fit whose hyperparameters a fixed variant takes

    @cached_property
    def key(self) -> str:
        """A name that is the same on every machine: the first 20 digits of a SHA-256 of all fields."""
        values = {name: getattr(self, name) for name in _FIELDS}
        text = json.dumps({"version": KEY_VERSION, **values}, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @cached_property
    def group(self) -> tuple[Any, ...]:
        """What cells of one batch must share: all but seed, beta and base."""
        return tuple(getattr(self, name) for name in _SHARED)

    @property
    def method(self) -> str:
        """The method of `conf/method` this cell is a candidate of (`elbo` stands for `beta_elbo` too)."""
        return self.objective if self.objective in ("elbo", "fitc") else f"{self.variant}_{self.objective}"

    @property
    def sampled(self) -> str:
        """The estimator, with its number of samples where it has one: `exact`, `bmc-10`."""
        return self.estimator if self.samples is None else f"{self.estimator}-{self.samples}"

    @property
    def per_epoch(self) -> int:
        """Iterations of an epoch."""
        return self.n // self.minibatch if self.minibatch else 1

    @property
    def iterations(self) -> int:
        """The limit; 0 where nothing is trained."""
        return self.epochs * self.per_epoch if self.epochs else self.max_iterations or 0

    @property
    def evaluate_every(self) -> int | None:
        """Iterations from one evaluation on the way to the next; None if there are none."""
        if self.evaluate == "end":
            return None
        return self.per_epoch if self.evaluate == "epoch" else int(self.evaluate)

    def describe(self) -> str:
        """One line for people: what is trained on what."""
        beta = "" if self.beta is None else f" beta={self.beta:g}"
        how = "" if self.parameterisation == "whitened" else f" {self.parameterisation}"
        return f"{self.dataset} n={self.n} seed={self.seed} {self.method} {self.sampled}{how}{beta}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(**values)


_FIELDS = tuple(f.name for f in fields(Cell))
_SHARED = tuple(name for name in _FIELDS if name not in ("seed", "beta", "base"))
