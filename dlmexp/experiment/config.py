"""The schema of `conf/`: what can be configured, with its types, limits and defaults.

Sections 5 and 6 of docs/SPEC.md give the reasons. `checked` holds every composed config against the
schema.
"""

from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any

from msgspec import Meta

from dlmexp.common.errors import UserError, shortened
from dlmexp.common.limits import (
    Device,
    Evaluate,
    Filled,
    FolderName,
    FoldingSetting,
    InducingCount,
    Iterations,
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
from dlmexp.common.literals import literal
from dlmexp.data.config import CsvConfig, DatasetConfig

Components = Annotated[int, Meta(gt=0, le=1000)]  # Gaussians of a mixture
# The kinds of data, each with its own settings of training.
KINDS = ("regression", "binary", "count", "large")
INDUCING = ("first", "last", "kmeans", "greedy")
InitialValue = float | int | Annotated[str, one_of("sqrt", "median")]


@dataclass
class MethodConfig:
    """One line of a figure.

    It is an objective, with who sets the hyperparameters, and whether beta is selected.
    """

    objective: str = "???"  # its name, such as elbo, log_dlm, sq_dlm, fitc or power_ep
    variant: Variant = "joint"  # fixed: hyperparameters from the beta = 1 fit of `base`
    base: str = "elbo"  # a joint method with beta = 1: elbo | ppgpr
    select: bool = True  # beta is selected over the grid; false: beta = 1
    # Numbers that the objective takes, by name; the others have its defaults.
    options: dict[str, float] = field(default_factory=dict)
    # Numbers of Gaussians that q is a mixture of; several are candidates of a selection, like beta.
    components: Annotated[list[Components], Filled] = field(default_factory=lambda: [1])


@dataclass
class BetaConfig:
    """The regularisation weights: the listed values, or a geometric grid.

    The grid starts at n / `first`. Each beta is the one before divided by `ratio`, or by
    `coarse_ratio` while that one is above `coarse_above`. It ends before the first beta below
    `smallest`.
    """

    first: Annotated[float, Meta(ge=1e-9, le=1e9)] = 1.0  # the grid starts at n / first
    ratio: Ratio | None = None  # from one beta to the next
    smallest: Annotated[float, Meta(ge=1e-9, le=1e300)] | None = None  # where the grid ends
    coarse_above: float | None = None  # above it, steps are larger
    coarse_ratio: Ratio | None = None  # the ratio of these steps
    zero: bool = False  # beta = 0 beside the grid
    # The betas themselves, in place of a grid.
    values: Annotated[list[Annotated[float, Meta(ge=0, le=1e300)]], Filled] | None = None


@dataclass
class MethodTrainingConfig:
    """What a protocol does differently for one method."""

    variant: Variant | None = None  # fixed: hyperparameters from the beta = 1 ELBO fit
    collapsed: bool | None = None  # false: q is optimised explicitly, though it has a closed form
    initial: dict[str, InitialValue] = field(default_factory=dict)  # hyperparameters by name


@dataclass
class TrainingConfig:
    """How one kind of data is trained on.

    `minibatch` applies where there are more rows than that.
    """

    lr: Rate = 0.1  # learning rate of Adam
    # The learning rate decays to `final_lr` within `decay` iterations. The stopping rule applies
    # after them.
    final_lr: Rate | None = None
    decay: Whole | None = None  # the number of iterations of the decay
    epsilon: Positive = 1e-8  # of Adam: added to the size of a gradient that it divides by
    # Steps are multiples of lr * resolution, so that rounding errors vanish.
    resolution: Positive | None = None
    minibatch: Whole | None = None  # rows of a step; null: all
    minibatch_lr: Rate = 0.1  # learning rate of minibatches
    # Rows are permuted in every epoch, or drawn anew for every step.
    minibatch_rows: Annotated[str, one_of("epochs", "afresh")] = "epochs"
    estimator_lr: dict[str, Rate] = field(default_factory=dict)  # of estimators with their own
    window: Whole | None = 20  # iterations that the stopping rule looks at; null: it is off
    # Training stops when the objective varies by less than this over the window.
    tolerance: Annotated[float, Meta(ge=0, le=1e300)] = 1e-4
    # What is compared with the tolerance: the spread of the objective per row, of its sum, or
    # relative to its size.
    criterion: Annotated[str, one_of("mean", "sum", "relative")] = "mean"
    max_iterations: Iterations = 3000  # training ends there at the latest
    epochs: Whole | None = None  # train for so many passes instead of until convergence
    # Initial hyperparameters by name; the others start at the model's own values.
    # That of the lengthscale may also be sqrt (of the number of features) or median (distance).
    initial: dict[str, InitialValue] = field(default_factory=dict)
    # Where inducing inputs start: the first or last rows, the centres of clusters, or the rows of
    # largest residual variance.
    inducing: Annotated[str, one_of(*INDUCING)] = "first"
    # The noise variance stays above this value; null: it may fall towards 0.
    noise_floor: Positive | None = None
    # lbfgs: L-BFGS for what has a closed form over q; the rest keeps Adam. It has no learning rate
    # and no window: it stops when 20 steps lower the objective per row by less than the tolerance.
    optimizer: Annotated[str, one_of("adam", "lbfgs")] = "adam"
    # Of L-BFGS: further starts from perturbed initial values; the best end is the result.
    restarts: Annotated[int, Meta(ge=0, le=100)] = 0
    # With Gaussian noise, training starts where so many evaluations of L-BFGS bring the ELBO; 0: at
    # the initial values.
    pilot: Annotated[int, Meta(ge=0, le=100_000)] = 0
    # The iteration before which a mixture is split into its components; null: half of the limit.
    split_at: Whole | None = None
    # The parameterisations of q that the protocol has; the first, unless all are asked for.
    parameterisation: Annotated[list[Parameterisation], Filled] = field(
        default_factory=lambda: ["whitened"]
    )
    by_method: dict[str, MethodTrainingConfig] = field(default_factory=dict)  # see below

    @property
    def least_iterations(self) -> int:
        """The least limit of iterations that leaves room for the decay and the stopping rule.

        The window of the stopping rule comes after the decay. 0 where nothing decays, or the number
        of epochs is given.
        """
        if self.decay is None or self.epochs:
            return 0
        return self.decay + (self.window or 0)


@dataclass
class AutoMConfig:
    """What `M=auto` chooses by (docs/SPEC.md, section 2).

    Attributes:
        tolerance: What a larger M may gain at most, in nats per row.
        most: The largest M.
    """

    tolerance: Positive = 0.1
    most: Whole = 200


@dataclass
class RunConfig:
    """Everything `dlmexp run` takes: the grid it spans, how it trains, where results go."""

    name: FolderName = "custom"  # of the experiment, which figures and results are named after
    # The name of a smaller version, which results are named after (conf/preset).
    preset: str | None = None
    # fit: models are trained; gradient: statistics of the estimators' gradients.
    measure: Annotated[str, one_of("fit", "gradient")] = "fit"
    # The datasets, as in dataset=[pol,cadata].
    dataset: dict[str, DatasetConfig] = field(default_factory=dict)
    # The methods, as in method=[elbo,fitc].
    method: dict[str, MethodConfig] = field(default_factory=dict)
    # The estimators, as in estimator=[exact,ups], with their options; lists are swept.
    estimator: dict[str, dict[str, Any]] = field(default_factory=dict)
    protocol: str = "custom"  # training settings with a name: conf/protocol
    beta: BetaConfig = field(default_factory=BetaConfig)  # the betas to choose from
    # Beta is selected by the metric that is reported, or always by NLL.
    selection: Annotated[str, one_of("reported", "nll")] = "reported"
    # What beta and K are selected on. null: the validation rows. 5: the rows of 5 folds, each
    # predicted by fits to the others. holdout: a tenth of the rows. After both the selected
    # candidate is trained on all rows, those for validation included. loo: each row, predicted from
    # all others in closed form; nothing is trained again. auto: 5 folds of fewer than 2000 rows,
    # holdout of more, and the validation rows where rows belong together by time or by group.
    cv: FoldingSetting | None = None
    # The parameterisations of q; null: the protocol's first for each kind of data; [all]: all of
    # the protocol's.
    parameterisation: (
        Annotated[list[Annotated[str, one_of("whitened", "unwhitened", "all")]], Filled] | None
    ) = None
    # Repetitions: each has its own division of the rows. seeds=5 is seeds=[0,1,2,3,4].
    seeds: Annotated[list[Seed], Filled] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    sizes: Annotated[list[Any], Filled] | None = None  # training rows; null: each dataset's own
    largest: Whole | None = None  # sizes beyond it are left out; where none is left, it is the size
    # Inducing inputs. null: each dataset's own number; auto: the fewest of which more gain little.
    M: Any = None  # InducingCount | None
    # What M=auto chooses by.
    auto_M: AutoMConfig = field(default_factory=AutoMConfig)  # noqa: N815 - M is a symbol
    kernel: str | None = None  # of the model; null: each dataset's own
    ard: bool | None = None  # a lengthscale per feature; null: each dataset's own
    likelihood: str | None = None  # of the model; null: each dataset's own
    # The prior mean; null: each dataset's own.
    mean: Annotated[str, one_of("zero", "constant")] | None = None
    # The validation rows that select beta; null: each dataset's own.
    validation: Annotated[str, one_of("all", "tenth", "train", "pool")] | None = None
    # Components of the methods whose q is a mixture; null: each method's own. It is selected with
    # beta.
    K: Annotated[list[Components], Filled] | None = None
    training: dict[str, TrainingConfig] = field(default_factory=dict)  # by KINDS: see below
    collapsed: bool = True  # closed forms over q where they exist; false optimises q explicitly
    # When fits are evaluated on test: at the end of training, after every epoch, or the number of
    # iterations between evaluations.
    evaluate: Evaluate = "end"
    # What the cells are for, where they are not fits, learning curves or gradients: anatomy | ...
    role: str | None = None
    # Settings that such an experiment varies; they are no change of its protocol.
    factors: list[str] = field(default_factory=list)
    # Other selections whose cells belong to this experiment.
    parts: list[list[str]] = field(default_factory=list)
    csv: CsvConfig = field(default_factory=CsvConfig)  # a table of your own: see below
    device: Device = "auto"  # a GPU where there is one; which: CUDA_VISIBLE_DEVICES=N
    # The precision of rows, not of parameters. float32 is for GPUs that are slow in float64.
    dtype: Annotated[str, one_of("float64", "float32")] = "float64"
    batch_cells: Whole | None = None  # cells trained at once; null: chosen for the device
    data_root: str | None = None  # the folder of raw files; null: $DLMEXP_DATA, or data
    results: Annotated[str, Filled] = "results"  # the folder of records
    checkpoint_seconds: Positive = 60.0  # between checkpoints
    # Where a dataset is missing, run the datasets that stand in for it, under their own names.
    stand_ins: bool = False
    # Modules of users that register objectives, kernels, figures, ...
    plugins: list[str] = field(default_factory=list)
    wait: bool = True  # until jobs on a cluster have ended; false: submit them and leave
    budget: str | None = None  # stop in time, everything saved: 90s, 25min, 2h
    # Processes that share the batches of this run; on GPUs at most one for each. By default it is
    # one, and for `dlmexp run` on a CPU as many as pay.
    workers: Annotated[int, Meta(gt=0, le=256)] | None = None
    plan: bool = False  # show what would run, and train nothing
    retry_failed: bool = False  # train failed cells again
    # changed: train again the cells that another version of a plugin's code has made.
    rerun: Annotated[str, one_of("changed")] | None = None
    # Which models are kept: those that methods select, all, or none.
    keep: Annotated[str, one_of("selected", "all", "none")] = "selected"


UNSET = "unset"
"""The value of `training.NAME`, for all kinds of data, where nobody has set it."""
IN_THIS_MODULE = {"__module__": __name__}  # where launchers that pickle them find classes
DICTIONARIES = ("estimator_lr", "initial")  # settings of training with values by name
FOR_ALL_KINDS = tuple(item.name for item in fields(TrainingConfig) if item.name != "by_method")
"""Settings of training that may be given for all kinds of data at once."""


def _training_of_all_kinds() -> type:
    """Return the type of `training` as Hydra sees it: of each kind, and settings for all kinds."""
    nodes: list[Any] = [
        (kind, TrainingConfig, field(default_factory=TrainingConfig)) for kind in KINDS
    ]
    for name in FOR_ALL_KINDS:
        if name in DICTIONARIES:
            nodes.append((name, dict[str, Any], field(default_factory=dict)))
        else:
            nodes.append((name, Any, field(default=UNSET)))
    return make_dataclass("Training", nodes, namespace=IN_THIS_MODULE)


Training = _training_of_all_kinds()
HydraConfig = make_dataclass(
    "HydraConfig",
    [("training", Training, field(default_factory=Training))],
    bases=(RunConfig,),
    namespace=IN_THIS_MODULE,
)
"""What `conf/run.yaml` starts from: a `RunConfig` before `training.NAME` is spread over kinds."""


def checked(values: dict[str, Any]) -> RunConfig:
    """Return the config with these values, each checked against its field.

    OmegaConf cannot check bounds, and accepts a list in place of a number inside a list.

    Raises:
        UserError: A field does not allow its value.
    """
    entry_types = {"dataset": DatasetConfig, "method": MethodConfig, "training": TrainingConfig}
    for group, kind in entry_types.items():
        for name, node in values[group].items():
            converted(f"{group}.{name}", node, kind)
    _check_inducing_count("M", values["M"])
    for name, node in values["dataset"].items():
        _check_inducing_count(f"dataset.{name}.M", node["M"])
    return converted("", values, RunConfig)


def _check_inducing_count(name: str, value: Any) -> None:
    """Check a setting that OmegaConf has no type for."""
    try:
        converted(name, value, InducingCount | None)
    except UserError:
        typed = shortened(value if isinstance(value, str) else literal(value))
        raise UserError(f"{name}={typed}: give a whole number > 0, or auto") from None
