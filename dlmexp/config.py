"""The schema of `conf/`: what can be configured, its types and its defaults (docs/SPEC.md, sections 5 and 6)."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

PARAMETERISATIONS = ("whitened", "unwhitened")
CRITERIA = ("mean", "sum", "relative")  # the spread of the objective per row, of its sum, or relative to its size
INDUCING = ("first", "last")
MINIBATCH_ROWS = ("epochs", "afresh")
SELECTIONS = ("reported", "nll")
KEEP = ("selected", "all", "none")


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
class BetaConfig:
    """The regularisation weights: the listed values, or a geometric grid from n / first downwards, each beta divided by
    `ratio` (by `coarse_ratio` while it is above `coarse_above`) as long as it is >= smallest."""

    first: float = 1.0
    ratio: float | None = None
    smallest: float | None = None
    coarse_above: float | None = None
    coarse_ratio: float | None = None
    zero: bool = False  # beta = 0 beside the grid
    values: list[float] | None = None


@dataclass
class MethodTrainingConfig:
    """What a protocol does differently for one method."""

    variant: str | None = None  # fixed: the hyperparameters of the beta = 1 ELBO fit are held
    collapsed: bool | None = None  # false: q is optimised explicitly, though it has a closed form
    initial: dict[str, float] = field(default_factory=dict)


@dataclass
class TrainingConfig:
    """How one kind of data is trained on. `minibatch` applies where there are more rows than that."""

    lr: float = 0.1
    final_lr: float | None = None  # the learning rate decays to this one ...
    decay: int | None = None  # ... within so many iterations; the stopping rule applies after them
    epsilon: float = 1e-8  # of Adam: added to the size of a gradient that it divides by
    resolution: float | None = None  # steps are multiples of lr * resolution, so that rounding errors do not enter them
    minibatch: int | None = None
    minibatch_lr: float = 0.1
    minibatch_rows: str = "epochs"  # epochs: a permutation in every epoch | afresh: drawn anew at every step
    estimator_lr: dict[str, float] = field(default_factory=dict)  # for estimators with a learning rate of their own
    window: int | None = 20  # null: all iterations are made
    tolerance: float = 1e-4
    criterion: str = "mean"  # what is compared with the tolerance: see CRITERIA
    max_iterations: int = 3000
    epochs: int | None = None  # train for so many passes instead of until convergence
    initial: dict[str, float] = field(default_factory=dict)  # hyperparameters by name; others: the model's own values
    inducing: str = "first"  # first | last rows of the training set
    noise_floor: float | None = None  # which the noise variance stays above; null: it may fall towards 0
    parameterisation: list[str] = field(default_factory=lambda: ["whitened"])  # the first one, unless all are asked for
    by_method: dict[str, MethodTrainingConfig] = field(default_factory=dict)

    @property
    def longest_decay(self) -> int:
        """After which the limit of iterations still leaves room for the window of the stopping rule."""
        return self.max_iterations - (self.window or 0)

    @property
    def has_room(self) -> bool:
        """Whether the limit of iterations leaves room for the decay."""
        return self.decay is None or bool(self.epochs) or self.decay <= self.longest_decay


@dataclass
class InitConfig:
    """Initial values of hyperparameters, for all data and methods; null: the protocol's."""

    lengthscale: float | None = None
    outputscale: float | None = None
    noise: float | None = None
    mean: float | None = None


@dataclass
class CsvConfig:
    """A user's own table, read by `dataset=csv`. Lists name columns."""

    path: str | None = None
    target: str | None = None
    task: str | None = None
    name: str = "csv"  # of the dataset, in records and figures
    columns: list[str] = field(default_factory=list)  # the features; empty: all columns but the target ...
    drop: list[str] = field(default_factory=list)  # ... and these
    categories: list[str] = field(default_factory=list)  # numbers that are names of categories
    dates: list[str] = field(default_factory=list)  # columns that must be dates, which become days since 1970
    date_format: str | None = None  # how dates are written if not as 2020-12-31, such as "%d/%m/%Y"
    sep: str | None = None  # between the columns of a text file: a character, or tab, semicolon, ...
    na: list[str] = field(default_factory=list)  # words that stand for a missing value, besides NA and the like
    missing: str = "refuse"  # refuse | drop (the rows) | mean (of the training rows) | level (of a category)
    levels: int | None = None  # the most that a category may have; null: a tenth of the rows, at most 100
    log: bool = False  # model the logarithm of a positive target; predictions are in its own units
    test: str | None = None  # a file of test rows
    split: str = "random"  # random | time (the latest rows are for testing) | group (none in two parts)
    by: str | None = None  # the column with times or groups
    arrays: dict[str, str] = field(default_factory=dict)  # of an npz file: which are X, y, X_test, y_test


@dataclass
class RunConfig:
    """Everything `dlmexp run` takes: the grid it spans, how it trains, where results go."""

    name: str = "custom"
    preset: str | None = None  # the name of a smaller version, which results are named after (conf/preset)
    measure: str = "fit"  # fit | gradient (statistics of the estimators' gradients)
    dataset: dict[str, DatasetConfig] = field(default_factory=dict)
    method: dict[str, MethodConfig] = field(default_factory=dict)
    estimator: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of each; lists are swept
    protocol: str = "custom"  # the name of the values below that conf/protocol/*.yaml sets
    beta: BetaConfig = field(default_factory=BetaConfig)
    selection: str = "reported"  # beta by the metric that is reported | nll: by NLL, whatever is reported
    parameterisation: list[str] | None = None  # of q; null: the protocol's first for each kind of data; [all]: all its
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    sizes: list[Any] | None = None  # null: each dataset's own
    largest: int | None = None  # sizes beyond it are left out; where none is left, it is the size
    M: int | None = None  # inducing points; null: each dataset's own number
    init: InitConfig = field(default_factory=InitConfig)
    training: dict[str, TrainingConfig] = field(default_factory=dict)
    collapsed: bool = True  # closed forms over q where they exist; false optimises q explicitly
    evaluate: str = "end"  # end | epoch | a number of iterations between evaluations on test
    role: str | None = None  # of the cells, where they are not fits, learning curves or gradients: anatomy | ...
    factors: list[str] = field(default_factory=list)  # settings that such an experiment varies: no change of protocol
    parts: list[list[str]] = field(default_factory=list)  # other selections whose cells belong to this experiment
    csv: CsvConfig = field(default_factory=CsvConfig)
    device: str = "auto"
    dtype: str = "float64"  # of the rows; float32 for GPUs that are slow in float64 (parameters stay float64)
    batch_cells: int | None = None  # cells trained at once; null: chosen for the device
    data_root: str | None = None
    results: str = "results"
    checkpoint_seconds: float = 60.0
    stand_ins: bool = False  # where a dataset is missing, run those at hand that stand in for it, under their own names
    plugins: list[str] = field(default_factory=list)  # modules of users that register objectives, kernels, figures, ...
    wait: bool = True  # for jobs on a cluster; false: submit them and leave
    budget: str | None = None  # stop in time, everything saved: 90s, 25min, 2h
    workers: int | None = None  # processes that share the batches of this run; on GPUs at most one for each.
    # Default: one; for `dlmexp run` on a CPU as many as pay
    plan: bool = False
    retry_failed: bool = False
    keep: str = "selected"  # trained models: selected (those that the methods select) | all | none
    refit: bool = False  # train cells again that are done and should have a model by `keep`, but have none


@cache
def register() -> None:
    """Make the schema known to Hydra under the name that `conf/run.yaml` starts from."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.instance().store(name="schema", node=RunConfig)
