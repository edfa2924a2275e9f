"""The schema of `conf/`: all settings with their types, limits and defaults.

Sections 5 and 6 of docs/SPEC.md give the reasons. `checked` checks every composed config against
the schema. The comments on the fields are also the text of the documentation of settings.
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
# The kinds of data, each with its own training settings.
KINDS = ("regression", "binary", "count", "large")
INDUCING = ("first", "last", "kmeans", "greedy")
InitialValue = float | int | Annotated[str, one_of("sqrt", "median")]


@dataclass
class MethodConfig:
    """A method, which is one line of a figure.

    It is an objective, the way in which hyperparameters are set, and whether beta is selected.
    """

    objective: str = "???"  # its name, such as elbo, log_dlm, sq_dlm, fitc or power_ep
    # joint: hyperparameters are trained with q; fixed: they are those of the beta = 1 fit of
    # `base`.
    variant: Variant = "joint"
    base: str = "elbo"  # for the fixed variant, a joint method with beta = 1: elbo | ppgpr
    select: bool = True  # beta is selected over the grid; false: beta = 1
    # Options of the objective by name; options that are not listed have their defaults.
    options: dict[str, float] = field(default_factory=dict)
    # Numbers of Gaussians that q is a mixture of. One of several numbers is selected, like beta.
    components: Annotated[list[Components], Filled] = field(default_factory=lambda: [1])


@dataclass
class BetaConfig:
    """The betas, which weight the regularisation: the listed values, or a geometric grid.

    The grid starts at n / `first`. The next beta is the current one divided by `ratio`, or by
    `coarse_ratio` if the current one is above `coarse_above`. The grid ends before the first beta
    below `smallest`.
    """

    first: Annotated[float, Meta(ge=1e-9, le=1e9)] = 1.0  # the grid starts at n / first
    ratio: Ratio | None = None  # a beta divided by the next smaller one
    # The grid ends before the first beta below this value.
    smallest: Annotated[float, Meta(ge=1e-9, le=1e300)] | None = None
    coarse_above: float | None = None  # above this beta, the grid is coarser
    coarse_ratio: Ratio | None = None  # the ratio above `coarse_above`
    zero: bool = False  # whether beta = 0 is added to the grid
    # The betas, listed in place of a grid.
    values: Annotated[list[Annotated[float, Meta(ge=0, le=1e300)]], Filled] | None = None


@dataclass
class MethodTrainingConfig:
    """The training settings of a protocol for one method only; null: as for all methods."""

    variant: Variant | None = None  # fixed: hyperparameters from the beta = 1 ELBO fit
    collapsed: bool | None = None  # false: q is optimised explicitly, though it has a closed form
    initial: dict[str, InitialValue] = field(default_factory=dict)  # hyperparameters by name


@dataclass
class TrainingConfig:
    """The training settings for one kind of data."""

    lr: Rate = 0.1  # learning rate of Adam
    # The learning rate decays to `final_lr` within `decay` iterations. The stopping rule applies
    # after the decay.
    final_lr: Rate | None = None
    decay: Whole | None = None  # the number of iterations of the decay
    epsilon: Positive = 1e-8  # of Adam, which divides by the size of a gradient plus epsilon
    # Adam's steps are rounded to multiples of lr * resolution, so that rounding errors vanish.
    resolution: Positive | None = None
    # The number of rows of a training step, if there are more training rows; null: all rows.
    minibatch: Whole | None = None
    minibatch_lr: Rate = 0.1  # learning rate with minibatches
    # epochs: rows are permuted once per epoch; afresh: the rows of every step are drawn anew.
    minibatch_rows: Annotated[str, one_of("epochs", "afresh")] = "epochs"
    estimator_lr: dict[str, Rate] = field(default_factory=dict)  # learning rates by estimator
    # The number of last iterations that the stopping rule compares; null: no stopping rule.
    window: Whole | None = 20
    # Training stops when the objective varies by less than this tolerance over the window.
    tolerance: Annotated[float, Meta(ge=0, le=1e300)] = 1e-4
    # The quantity that is compared with the tolerance: the spread of the objective per row (mean),
    # the spread of its sum over rows (sum), or the spread divided by its size (relative).
    criterion: Annotated[str, one_of("mean", "sum", "relative")] = "mean"
    max_iterations: Iterations = 3000  # the limit of iterations
    epochs: Whole | None = None  # the number of passes over the data, in place of a stopping rule
    # Initial hyperparameters by name; those that are not listed start at the model's defaults. The
    # lengthscale may also be sqrt (of the number of features) or median (of the distances between
    # rows).
    initial: dict[str, InitialValue] = field(default_factory=dict)
    # The initial inducing inputs: the first or last rows, the centres of clusters (kmeans), or rows
    # that are chosen one by one, each with the largest residual variance (greedy).
    inducing: Annotated[str, one_of(*INDUCING)] = "first"
    # The noise variance stays above this value; null: the noise variance may fall towards 0.
    noise_floor: Positive | None = None
    # lbfgs: objectives with a closed form over q are minimised by L-BFGS, all others by Adam.
    # L-BFGS has no learning rate and no window: it stops when 20 steps lower the objective per row
    # by less than the tolerance.
    optimizer: Annotated[str, one_of("adam", "lbfgs")] = "adam"
    # The number of further starts of L-BFGS, from perturbed initial values; the result is that of
    # the start with the lowest final objective.
    restarts: Annotated[int, Meta(ge=0, le=100)] = 0
    # With Gaussian noise, training starts at the result of an ELBO fit by L-BFGS with at most this
    # many evaluations; 0: at the initial values.
    pilot: Annotated[int, Meta(ge=0, le=100_000)] = 0
    # The iteration before which a mixture is split into its components; null: half of the limit.
    split_at: Whole | None = None
    # The parameterisations of q in the protocol. Only the first is used by default.
    parameterisation: Annotated[list[Parameterisation], Filled] = field(
        default_factory=lambda: ["whitened"]
    )
    # The settings that hold for one method only: see training.KIND.by_method.NAME.
    by_method: dict[str, MethodTrainingConfig] = field(default_factory=dict)

    @property
    def least_iterations(self) -> int:
        """The least `max_iterations` that leaves room for the decay and, after it, the window.

        It is 0 without a decay, or if `epochs` replaces `max_iterations`.
        """
        if self.decay is None or self.epochs:
            return 0
        return self.decay + (self.window or 0)


@dataclass
class AutoMConfig:
    """The rule by which `M=auto` chooses (docs/SPEC.md, section 2).

    Attributes:
        tolerance: The most that a larger M may gain, in nats per row.
        most: The largest M.
    """

    tolerance: Positive = 0.1
    most: Whole = 200


@dataclass
class RunConfig:
    """All settings of `dlmexp run`: which cells it trains, how, and where it writes results."""

    name: FolderName = "custom"  # of the experiment, in the names of figures and manifests
    # The name of a smaller version of the experiment (conf/preset), in the names of figures and
    # manifests.
    preset: str | None = None
    # fit: models are trained; gradient: statistics of the estimators' gradients.
    measure: Annotated[str, one_of("fit", "gradient")] = "fit"
    # The datasets, as in dataset=[pol,cadata].
    dataset: dict[str, DatasetConfig] = field(default_factory=dict)
    # The methods, as in method=[elbo,fitc].
    method: dict[str, MethodConfig] = field(default_factory=dict)
    # The estimators, as in estimator=[exact,ups], with their options. If an option is a list, each
    # of its values is used.
    estimator: dict[str, dict[str, Any]] = field(default_factory=dict)
    protocol: str = "custom"  # the name of training settings: conf/protocol
    beta: BetaConfig = field(default_factory=BetaConfig)  # the betas to select from
    # reported: each reported metric selects its own beta; nll: the NLL selects for all metrics.
    selection: Annotated[str, one_of("reported", "nll")] = "reported"
    # The rows on which beta and K are selected. null: the validation rows. 5: the rows of 5 folds,
    # each predicted by a fit to the other folds. holdout: a tenth of the rows. After folds and
    # holdout the selected candidate is trained on all rows, those for validation included. loo:
    # each row, predicted from all others in closed form; nothing is trained again. auto: 5 folds
    # for fewer than 2000 rows, holdout for more, and the validation rows if rows belong together
    # by time or by group.
    cv: FoldingSetting | None = None
    # The parameterisations of q; null: the first one of the protocol for each kind of data; [all]:
    # all of the protocol.
    parameterisation: (
        Annotated[list[Annotated[str, one_of("whitened", "unwhitened", "all")]], Filled] | None
    ) = None
    # The repetitions, each of which divides the rows in another way. seeds=5 is seeds=[0,1,2,3,4].
    seeds: Annotated[list[Seed], Filled] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    # Numbers of training rows; null: each dataset's own.
    sizes: Annotated[list[Any], Filled] | None = None
    # The largest size. Larger sizes are left out; if all are larger, this is the only size.
    largest: Whole | None = None
    # The number of inducing inputs. null: each dataset's own number; auto: chosen such that a
    # larger number would gain little.
    M: Any = None  # InducingCount | None, for which OmegaConf has no type
    # The rule by which M=auto chooses.
    auto_M: AutoMConfig = field(default_factory=AutoMConfig)  # noqa: N815 - M is a symbol
    kernel: str | None = None  # of the model; null: each dataset's own
    ard: bool | None = None  # a lengthscale per feature; null: each dataset's own
    likelihood: str | None = None  # of the model; null: each dataset's own
    # The prior mean; null: each dataset's own.
    mean: Annotated[str, one_of("zero", "constant")] | None = None
    # The validation rows that select beta; null: each dataset's own.
    validation: Annotated[str, one_of("all", "tenth", "train", "pool")] | None = None
    # Numbers of components of the methods whose q is a mixture; null: each method's own. If several
    # are listed, one is selected, like beta.
    K: Annotated[list[Components], Filled] | None = None
    training: dict[str, TrainingConfig] = field(default_factory=dict)  # see training.KIND
    collapsed: bool = True  # whether closed forms over q are used; false: q is always optimised
    # When fits are evaluated on the test rows. end: after training; epoch: after every epoch; a
    # number: whenever so many iterations have passed.
    evaluate: Evaluate = "end"
    # The purpose of cells that are not fits, learning curves or gradients, such as anatomy.
    role: str | None = None
    # Settings that an experiment with a `role` varies. They are columns of its results, and do not
    # count as changes of its protocol.
    factors: list[str] = field(default_factory=list)
    # Lists of overrides; the cells of the run that each list describes are part of this experiment.
    parts: list[list[str]] = field(default_factory=list)
    csv: CsvConfig = field(default_factory=CsvConfig)  # a table of your own: see csv.path
    device: Device = "auto"  # auto: a GPU if there is one; CUDA_VISIBLE_DEVICES=N selects the GPU
    # The precision of arrays with an entry per row; parameters are float64. float32 is for GPUs
    # that are slow in float64.
    dtype: Annotated[str, one_of("float64", "float32")] = "float64"
    batch_cells: Whole | None = None  # cells trained at once; null: chosen for the device
    data_root: str | None = None  # the folder of raw files; null: $DLMEXP_DATA, or data
    results: Annotated[str, Filled] = "results"  # the folder of records
    checkpoint_seconds: Positive = 60.0  # the time between checkpoints
    # Whether datasets that stand in for a missing dataset are run, under their own names.
    stand_ins: bool = False
    # Modules of users that register objectives, kernels, figures, ...
    plugins: list[str] = field(default_factory=list)
    wait: bool = True  # whether to wait until jobs on a cluster have ended
    # The time after which a run saves its state and stops: 90s, 25min, 2h.
    budget: str | None = None
    # The number of processes that share the batches of this run; on GPUs at most one for each GPU.
    # null: one, but `dlmexp run` on a CPU chooses the number.
    workers: Annotated[int, Meta(gt=0, le=256)] | None = None
    plan: bool = False  # show the cells that would be trained, and train nothing
    retry_failed: bool = False  # train failed cells again
    # changed: train cells again whose record was made by another version of a plugin's code.
    rerun: Annotated[str, one_of("changed")] | None = None
    # Which models are kept: those that methods select, all, or none.
    keep: Annotated[str, one_of("selected", "all", "none")] = "selected"


UNSET = "unset"
"""The value of `training.NAME`, a setting for all kinds of data, if it is not set anywhere."""
# The namespace of classes that `make_dataclass` creates. Launchers can pickle a class only if it
# names the module that has it.
CLASS_NAMESPACE = {"__module__": __name__}
DICTIONARY_SETTINGS = ("estimator_lr", "initial")  # training settings with values by name
FOR_ALL_KINDS = tuple(
    setting.name for setting in fields(TrainingConfig) if setting.name != "by_method"
)
"""Training settings that can be set for all kinds of data at once: `training.lr=0.01`."""


def _training_class() -> type:
    """Return the class of `training` as Hydra sees it.

    It has a field for each kind of data, such as `training.binary`, and a field for each setting
    for all kinds, such as `training.lr`.
    """
    class_fields: list[Any] = [
        (kind, TrainingConfig, field(default_factory=TrainingConfig)) for kind in KINDS
    ]
    for name in FOR_ALL_KINDS:
        if name in DICTIONARY_SETTINGS:
            class_fields.append((name, dict[str, Any], field(default_factory=dict)))
        else:
            class_fields.append((name, Any, field(default=UNSET)))
    return make_dataclass("Training", class_fields, namespace=CLASS_NAMESPACE)


Training = _training_class()
HydraConfig = make_dataclass(
    "HydraConfig",
    [("training", Training, field(default_factory=Training))],
    bases=(RunConfig,),
    namespace=CLASS_NAMESPACE,
)
"""The schema for Hydra: a `RunConfig` that also has settings of training for all kinds of data.

`compose` moves the settings for all kinds to each kind.
"""


def checked(values: dict[str, Any]) -> RunConfig:
    """Return the config with these values, after checking each against the type of its field.

    OmegaConf has checked the types. It cannot check bounds, and inside of a list it accepts a list
    in place of a number.

    Raises:
        UserError: A field does not allow its value.
    """
    # Check the entries of dictionaries first: only these checks can name the entry in a message.
    entry_types = {"dataset": DatasetConfig, "method": MethodConfig, "training": TrainingConfig}
    for group, entry_type in entry_types.items():
        for name, entry in values[group].items():
            converted(f"{group}.{name}", entry, entry_type)
    _check_inducing_count("M", values["M"])
    for name, dataset in values["dataset"].items():
        _check_inducing_count(f"dataset.{name}.M", dataset["M"])
    return converted("", values, RunConfig)


def _check_inducing_count(name: str, value: Any) -> None:
    """Check a number of inducing inputs, for which OmegaConf has no type.

    Raises:
        UserError: It is neither a whole number above 0, nor auto, nor null.
    """
    try:
        converted(name, value, InducingCount | None)
    except UserError:
        typed = shortened(value if isinstance(value, str) else literal(value))
        raise UserError(f"{name}={typed}: give a whole number > 0, or auto") from None
