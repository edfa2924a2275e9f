"""The schema of `conf/`: what can be configured, of which type, within which limits, and its
defaults.

Sections 5 and 6 of docs/SPEC.md give the reasons. `checked` holds every composed config against the
schema."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from msgspec import Meta

from dlmexp.common.limits import (
    Device,
    Evaluate,
    Filled,
    FolderName,
    Parameterisation,
    Positive,
    Rate,
    Ratio,
    Seed,
    Variant,
    Whole,
    converted,
    one_of,
)
from dlmexp.data.config import CsvConfig, DatasetConfig

KINDS = (
    "regression",
    "binary",
    "count",
    "large",
)  # of data, each with its own settings of training


@dataclass
class MethodConfig:
    """One line of a figure: an objective, who sets the hyperparameters, and whether beta is
    selected."""

    objective: str = "???"  # elbo | log_dlm | sq_dlm | fitc | power_ep | exact
    variant: Variant = "joint"  # fixed: hyperparameters from the beta = 1 fit of `base`
    base: str = "elbo"  # a joint method with beta = 1: elbo | ppgpr
    select: bool = True  # over the beta grid; false: beta = 1


@dataclass
class BetaConfig:
    """The regularisation weights: the listed values, or a geometric grid from n / first downwards,
    each beta divided by `ratio` (by `coarse_ratio` while it is above `coarse_above`) as long as it
    is >= smallest."""

    first: Annotated[float, Meta(ge=1e-9, le=1e9)] = 1.0
    ratio: Ratio | None = None
    smallest: Annotated[float, Meta(ge=1e-9, le=1e300)] | None = None
    coarse_above: float | None = None
    coarse_ratio: Ratio | None = None
    zero: bool = False  # beta = 0 beside the grid
    values: Annotated[list[Annotated[float, Meta(ge=0, le=1e300)]], Filled] | None = None


@dataclass
class MethodTrainingConfig:
    """What a protocol does differently for one method."""

    variant: Variant | None = None  # fixed: hyperparameters from the beta = 1 ELBO fit
    collapsed: bool | None = None  # false: q is optimised explicitly, though it has a closed form
    initial: dict[str, float] = field(default_factory=dict)


@dataclass
class TrainingConfig:
    """How one kind of data is trained on. `minibatch` applies where there are more rows than
    that."""

    lr: Rate = 0.1
    final_lr: Rate | None = None  # the learning rate decays to this value ...
    decay: Whole | None = (
        None  # ... within so many iterations; the stopping rule applies after them
    )
    epsilon: Positive = 1e-8  # of Adam: added to the size of a gradient that it divides by
    resolution: Positive | None = (
        None  # steps are multiples of lr * resolution, so that rounding errors vanish
    )
    minibatch: Whole | None = None
    minibatch_lr: Rate = 0.1
    minibatch_rows: Annotated[str, one_of("epochs", "afresh")] = (
        "epochs"  # permuted in every epoch, or drawn anew
    )
    estimator_lr: dict[str, Rate] = field(default_factory=dict)  # of estimators with their own
    window: Whole | None = 20  # null: all iterations are made
    tolerance: Annotated[float, Meta(ge=0, le=1e300)] = 1e-4
    # What is compared with the tolerance: the spread of the objective per row, of its sum, or
    # relative to its size.
    criterion: Annotated[str, one_of("mean", "sum", "relative")] = "mean"
    max_iterations: Whole = 3000
    epochs: Whole | None = None  # train for so many passes instead of until convergence
    initial: dict[str, float] = field(
        default_factory=dict
    )  # hyperparameters by name; others: the model's own values
    inducing: Annotated[str, one_of("first", "last")] = "first"  # rows of the training set
    noise_floor: Positive | None = (
        None  # which the noise variance stays above; null: it may fall towards 0
    )
    # Those of q that the protocol has; the first, unless all are asked for.
    parameterisation: Annotated[list[Parameterisation], Filled] = field(
        default_factory=lambda: ["whitened"]
    )
    by_method: dict[str, MethodTrainingConfig] = field(default_factory=dict)

    @property
    def least_iterations(self) -> int:
        """The limit of iterations that leaves room for the decay, and for the window of the
        stopping rule after it."""
        return 0 if self.decay is None or self.epochs else self.decay + (self.window or 0)


@dataclass
class RunConfig:
    """Everything `dlmexp run` takes: the grid it spans, how it trains, where results go."""

    name: FolderName = "custom"
    preset: str | None = (
        None  # the name of a smaller version, which results are named after (conf/preset)
    )
    measure: Annotated[str, one_of("fit", "gradient")] = (
        "fit"  # gradient: statistics of the estimators' gradients
    )
    dataset: dict[str, DatasetConfig] = field(default_factory=dict)
    method: dict[str, MethodConfig] = field(default_factory=dict)
    estimator: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # options of each; lists are swept
    protocol: str = "custom"  # the name of the values below that conf/protocol/*.yaml sets
    beta: BetaConfig = field(default_factory=BetaConfig)
    selection: Annotated[str, one_of("reported", "nll")] = (
        "reported"  # beta by the metric reported, or always by NLL
    )
    # Of q; null: the protocol's first for each kind of data; [all]: all of the protocol's.
    parameterisation: (
        Annotated[list[Annotated[str, one_of("whitened", "unwhitened", "all")]], Filled] | None
    ) = None
    seeds: Annotated[list[Seed], Filled] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    sizes: Annotated[list[Any], Filled] | None = None  # null: each dataset's own
    largest: Whole | None = None  # sizes beyond it are left out; where none is left, it is the size
    M: Whole | None = None  # inducing points; null: each dataset's own number
    training: dict[str, TrainingConfig] = field(default_factory=dict)  # for each of KINDS
    collapsed: bool = True  # closed forms over q where they exist; false optimises q explicitly
    # At the end of training, after every epoch, or iterations between evaluations on test.
    evaluate: Evaluate = "end"
    role: str | None = (
        None  # of the cells, where they are not fits, learning curves or gradients: anatomy | ...
    )
    factors: list[str] = field(
        default_factory=list
    )  # settings that such an experiment varies: no change of protocol
    parts: list[list[str]] = field(
        default_factory=list
    )  # other selections whose cells belong to this experiment
    csv: CsvConfig = field(default_factory=CsvConfig)
    device: Device = "auto"  # which GPU: CUDA_VISIBLE_DEVICES=N in the environment
    dtype: Annotated[str, one_of("float64", "float32")] = (
        "float64"  # of rows, not parameters; for GPUs slow in float64
    )
    batch_cells: Whole | None = None  # cells trained at once; null: chosen for the device
    data_root: str | None = None
    results: Annotated[str, Filled] = "results"
    checkpoint_seconds: Positive = 60.0
    # where a dataset is missing, run the datasets that stand in for it, under their own names
    stand_ins: bool = False
    plugins: list[str] = field(
        default_factory=list
    )  # modules of users that register objectives, kernels, figures, ...
    wait: bool = True  # for jobs on a cluster; false: submit them and leave
    budget: str | None = None  # stop in time, everything saved: 90s, 25min, 2h
    # Processes that share the batches of this run; on GPUs at most one for each. Default: one; for
    # `dlmexp run` on a CPU as many as pay.
    workers: Annotated[int, Meta(gt=0, le=256)] | None = None
    plan: bool = False
    retry_failed: bool = False
    keep: Annotated[str, one_of("selected", "all", "none")] = (
        "selected"  # models: those that methods select, ...
    )


def checked(values: dict[str, Any]) -> RunConfig:
    """The config with these values; UserError about the first that its field does not allow:
    OmegaConf knows no limits, and takes a list for a number that is in a list."""
    for group, kind in (
        ("dataset", DatasetConfig),
        ("method", MethodConfig),
        ("training", TrainingConfig),
    ):
        for name, node in values[group].items():
            converted(f"{group}.{name}", node, kind)
    return converted("", values, RunConfig)
