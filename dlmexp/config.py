"""The schema of `conf/`: what can be configured, its types and its defaults (docs/SPEC.md, sections 5 and 6)."""

from dataclasses import dataclass, field
from typing import Any

PARAMETERISATIONS = ("whitened", "unwhitened")


@dataclass
class DatasetConfig:
    """One dataset: where it comes from, how it is split, and the model the paper puts on it."""

    name: str = "???"
    loader: str = "???"
    task: str = "???"  # regression | binary | count
    likelihood: str = "???"
    kernel: str = "rbf"
    ard: bool = False
    mean: str = "zero"  # zero | constant
    M: int | None = None  # inducing points; null chooses by the number of rows
    sizes: list[Any] = field(default_factory=list)  # rows, or shares of the training pool such as '5%'
    split: str = "???"  # regression | counts | airline
    test_cap: int | None = None
    stands_for: str | None = None  # the paper's dataset this one is a part of or stands in for
    rows: int | None = None
    features: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    files: list[Any] = field(default_factory=list)
    note: str | None = None


@dataclass
class MethodConfig:
    """One line of a figure: an objective, who sets the hyperparameters, and whether beta is selected."""

    objective: str = "???"  # elbo | log_dlm | sq_dlm | fitc
    variant: str = "joint"  # joint | fixed (hyperparameters from the beta = 1 ELBO fit)
    select: bool = True  # over the beta grid; false: beta = 1


@dataclass
class EstimatorConfig:
    """An estimator of the log-loss term; the lists are swept."""

    samples: list[int] = field(default_factory=list)  # empty: the estimator takes no samples
    nu: float | None = None
    nodes: int | None = None
    sampler: str | None = None


@dataclass
class BetaConfig:
    """The regularisation weights: a geometric grid from n downwards, or the listed values."""

    ratio: float | None = None
    smallest: float | None = None
    values: list[float] | None = None

    @property
    def rule(self) -> str:
        """In words: 'n, n/2, ... >= 0.01', or the values, the largest first."""
        if self.values is not None:
            return ", ".join(f"{value:g}" for value in sorted(set(self.values), reverse=True))
        return f"n, n/{self.ratio:g}, ... >= {self.smallest:g}"


@dataclass
class TrainingConfig:
    """How one kind of data is trained on. `minibatch` applies where there are more rows than that."""

    lr: float = 0.1
    minibatch: int | None = None
    minibatch_lr: float = 1e-3
    ups_lr: float | None = None  # uPS with its own learning rate (counts)
    window: int = 20
    tolerance: float = 1e-4
    max_iterations: int = 3000
    epochs: int | None = None  # train for so many passes instead of until convergence


@dataclass
class CsvConfig:
    """A user's own table, read by `dataset=csv`."""

    path: str | None = None
    target: str | None = None
    task: str | None = None
    name: str = "csv"


@dataclass
class RunConfig:
    """Everything `dlmexp run` takes: the grid it spans, how it trains, where results go."""

    name: str = "custom"
    measure: str = "fit"  # fit | gradient (statistics of the estimators' gradients)
    dataset: dict[str, DatasetConfig] = field(default_factory=dict)
    method: dict[str, MethodConfig] = field(default_factory=dict)
    estimator: dict[str, EstimatorConfig] = field(default_factory=dict)
    beta: BetaConfig = field(default_factory=BetaConfig)
    parameterisation: list[str] = field(default_factory=lambda: ["whitened"])
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    sizes: list[Any] | None = None  # null: each dataset's own
    training: dict[str, TrainingConfig] = field(default_factory=dict)
    collapsed: bool = True  # closed forms over q where they exist; false optimises q explicitly
    evaluate: str = "end"  # end | epoch | a number of iterations between evaluations on test
    parts: list[list[str]] = field(default_factory=list)  # other selections whose cells belong to this experiment
    csv: CsvConfig = field(default_factory=CsvConfig)
    device: str = "auto"
    dtype: str = "float64"
    batch_cells: int | None = None  # cells trained at once; null: chosen for the device
    data_root: str | None = None
    results: str = "results"
    checkpoint_seconds: float = 60.0
    wait: bool = True  # for jobs on a cluster; false: submit them and leave
    budget: str | None = None  # stop in time, everything saved: 90s, 25min, 2h
    workers: int = 1  # processes that share the batches of this run
    plan: bool = False
    retry_failed: bool = False


def register() -> None:
    """Make the schema known to Hydra under the name that `conf/run.yaml` starts from."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=RunConfig)
