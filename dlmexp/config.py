"""The schema of `conf/`: what can be configured, of which type, within which limits, and its defaults (docs/SPEC.md,
sections 5 and 6). `checked` holds every composed config against it."""

import re
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dlmexp.errors import UserError, shortened
from dlmexp.literals import literal

KINDS = ("regression", "binary", "count", "large")  # of data, each with its own settings of training
DEVICES = ("auto", "cpu", "cuda")  # cuda: the first GPU that CUDA sees; all trains on that one


def one_of(*words: str) -> Meta:
    """The limit of a text that is one of these words."""
    return Meta(pattern=f"^({'|'.join(words)})$")


ITERATIONS = "[1-9][0-9]{0,15}"  # a whole number as text
RESERVED = ("records", "data", "tables", "running", "checkpoints", "quarantine", "multirun", "figures")
# The name of an experiment's folder in the results; without a line end, which `$` would allow.
FOLDER = f"(?!({'|'.join(RESERVED)})$)[A-Za-z0-9_][A-Za-z0-9_.-]{{0,99}}(?![^/])"
IN_WORDS = {
    FOLDER: f"at most 100 letters, digits, '-', '_' and '.', and none of {', '.join(RESERVED)}",
    ITERATIONS: "a number of iterations", "array of length >= 1": "at least one value",
}  # fmt: skip
# Types with limits, which `checked` checks with msgspec. OmegaConf sees the plain types.
Device = Annotated[str, one_of(*DEVICES)]
Evaluate = Annotated[str, one_of("end", "epoch", ITERATIONS)]
Filled = Meta(min_length=1)
FolderName = Annotated[str, one_of(FOLDER)]
Parameterisation = Annotated[str, one_of("whitened", "unwhitened")]
Positive = Annotated[float, Meta(gt=0, le=1e300)]
Rate = Annotated[float, Meta(gt=0, le=10)]  # of learning
Ratio = Annotated[float, Meta(ge=1.01, le=1e300)]
Seed = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Variant = Annotated[str, one_of("joint", "fixed")]
Whole = Annotated[int, Meta(gt=0)]


@dataclass
class DatasetConfig:
    """One dataset: where it comes from, how it is split, and the model the paper puts on it."""

    name: FolderName = "???"
    loader: str = "???"
    task: Annotated[str, one_of("regression", "binary", "count")] = "???"
    likelihood: str = "???"
    kernel: str = "rbf"
    ard: bool = False
    mean: Annotated[str, one_of("zero", "constant")] = "zero"
    M: Whole | None = None  # inducing points; null chooses by the number of rows
    sizes: list[Any] = field(default_factory=list)  # rows, or shares of the training pool as '5%'; empty: all of it
    split: str = "???"  # regression | counts | airline
    test_cap: Whole | None = None
    # All rows for validation select beta; or only n / 10 of them; or they are training rows too, and select nothing.
    validation: Annotated[str, one_of("all", "tenth", "train")] = "all"
    stands_for: str | None = None  # the paper's dataset this one is a part of or stands in for
    rows: int | None = None
    features: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    files: list[Any] = field(default_factory=list)
    note: str | None = None

    @property
    def kind(self) -> str:
        """The key of its settings in `RunConfig.training`: the task, or `large` for data with the airline split."""
        return "large" if self.split.startswith("airline") else self.task


@dataclass
class MethodConfig:
    """One line of a figure: an objective, who sets the hyperparameters, and whether beta is selected."""

    objective: str = "???"  # elbo | log_dlm | sq_dlm | fitc
    variant: Variant = "joint"  # fixed: hyperparameters from the beta = 1 fit of `base`
    base: str = "elbo"  # a joint method with beta = 1: elbo | ppgpr
    select: bool = True  # over the beta grid; false: beta = 1


@dataclass
class BetaConfig:
    """The regularisation weights: the listed values, or a geometric grid from n / first downwards, each beta divided by
    `ratio` (by `coarse_ratio` while it is above `coarse_above`) as long as it is >= smallest."""

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
    """How one kind of data is trained on. `minibatch` applies where there are more rows than that."""

    lr: Rate = 0.1
    final_lr: Rate | None = None  # the learning rate decays to this value ...
    decay: Whole | None = None  # ... within so many iterations; the stopping rule applies after them
    epsilon: Positive = 1e-8  # of Adam: added to the size of a gradient that it divides by
    resolution: Positive | None = None  # steps are multiples of lr * resolution, so that rounding errors vanish
    minibatch: Whole | None = None
    minibatch_lr: Rate = 0.1
    minibatch_rows: Annotated[str, one_of("epochs", "afresh")] = "epochs"  # permuted in every epoch, or drawn anew
    estimator_lr: dict[str, Rate] = field(default_factory=dict)  # of estimators with their own
    window: Whole | None = 20  # null: all iterations are made
    tolerance: Annotated[float, Meta(ge=0, le=1e300)] = 1e-4
    # What is compared with the tolerance: the spread of the objective per row, of its sum, or relative to its size.
    criterion: Annotated[str, one_of("mean", "sum", "relative")] = "mean"
    max_iterations: Whole = 3000
    epochs: Whole | None = None  # train for so many passes instead of until convergence
    initial: dict[str, float] = field(default_factory=dict)  # hyperparameters by name; others: the model's own values
    inducing: Annotated[str, one_of("first", "last")] = "first"  # rows of the training set
    noise_floor: Positive | None = None  # which the noise variance stays above; null: it may fall towards 0
    # Those of q that the protocol has; the first, unless all are asked for.
    parameterisation: Annotated[list[Parameterisation], Filled] = field(default_factory=lambda: ["whitened"])
    by_method: dict[str, MethodTrainingConfig] = field(default_factory=dict)

    @property
    def least_iterations(self) -> int:
        """The limit of iterations that leaves room for the decay, and for the window of the stopping rule after it."""
        return 0 if self.decay is None or self.epochs else self.decay + (self.window or 0)


@dataclass
class CsvConfig:
    """A user's own table, read by `dataset=csv`. Lists name columns."""

    path: str | None = None
    target: str | None = None
    task: str | None = None
    name: FolderName = "csv"  # of the dataset, in records and figures
    columns: list[str] = field(default_factory=list)  # the features; empty: all columns but the target ...
    drop: list[str] = field(default_factory=list)  # ... and these
    categories: list[str] = field(default_factory=list)  # numbers, or many different texts, that are categories
    date_format: str | None = None  # how dates are written if not as 2020-12-31, such as "%d/%m/%Y"
    sep: str | None = None  # between the columns of a text file: a character, or tab, semicolon, ...
    na: list[str] = field(default_factory=list)  # words that stand for a missing value, besides NA and the like
    # Rows with missing values are dropped; or the mean of those for training or a level of its own stands for a value.
    missing: Annotated[str, one_of("refuse", "drop", "mean", "level")] = "refuse"
    log: bool = False  # model the logarithm of a positive target; predictions are in its own units
    test: str | None = None  # a file of test rows
    split: Annotated[str, one_of("random", "time", "group")] = (
        "random"  # time: the latest rows test; group: none in two parts
    )
    by: str | None = None  # the column with times or groups


@dataclass
class RunConfig:
    """Everything `dlmexp run` takes: the grid it spans, how it trains, where results go."""

    name: FolderName = "custom"
    preset: str | None = None  # the name of a smaller version, which results are named after (conf/preset)
    measure: Annotated[str, one_of("fit", "gradient")] = "fit"  # gradient: statistics of the estimators' gradients
    dataset: dict[str, DatasetConfig] = field(default_factory=dict)
    method: dict[str, MethodConfig] = field(default_factory=dict)
    estimator: dict[str, dict[str, Any]] = field(default_factory=dict)  # options of each; lists are swept
    protocol: str = "custom"  # the name of the values below that conf/protocol/*.yaml sets
    beta: BetaConfig = field(default_factory=BetaConfig)
    selection: Annotated[str, one_of("reported", "nll")] = "reported"  # beta by the metric reported, or always by NLL
    # Of q; null: the protocol's first for each kind of data; [all]: all of the protocol's.
    parameterisation: Annotated[list[Annotated[str, one_of("whitened", "unwhitened", "all")]], Filled] | None = None
    seeds: Annotated[list[Seed], Filled] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    sizes: Annotated[list[Any], Filled] | None = None  # null: each dataset's own
    largest: Whole | None = None  # sizes beyond it are left out; where none is left, it is the size
    M: Whole | None = None  # inducing points; null: each dataset's own number
    training: dict[str, TrainingConfig] = field(default_factory=dict)  # for each of KINDS
    collapsed: bool = True  # closed forms over q where they exist; false optimises q explicitly
    # At the end of training, after every epoch, or iterations between evaluations on test.
    evaluate: Evaluate = "end"
    role: str | None = None  # of the cells, where they are not fits, learning curves or gradients: anatomy | ...
    factors: list[str] = field(default_factory=list)  # settings that such an experiment varies: no change of protocol
    parts: list[list[str]] = field(default_factory=list)  # other selections whose cells belong to this experiment
    csv: CsvConfig = field(default_factory=CsvConfig)
    device: Device = "auto"  # which GPU: CUDA_VISIBLE_DEVICES=N in the environment
    dtype: Annotated[str, one_of("float64", "float32")] = "float64"  # of rows, not parameters; for GPUs slow in float64
    batch_cells: Whole | None = None  # cells trained at once; null: chosen for the device
    data_root: str | None = None
    results: Annotated[str, Filled] = "results"
    checkpoint_seconds: Positive = 60.0
    stand_ins: bool = False  # where a dataset is missing, run the datasets that stand in for it, under their own names
    plugins: list[str] = field(default_factory=list)  # modules of users that register objectives, kernels, figures, ...
    wait: bool = True  # for jobs on a cluster; false: submit them and leave
    budget: str | None = None  # stop in time, everything saved: 90s, 25min, 2h
    # Processes that share the batches of this run; on GPUs at most one for each. Default: one; for `dlmexp run` on a
    # CPU as many as pay.
    workers: Annotated[int, Meta(gt=0, le=256)] | None = None
    plan: bool = False
    retry_failed: bool = False
    keep: Annotated[str, one_of("selected", "all", "none")] = "selected"  # models: those that methods select, ...


def converted(name: str, value: Any, kind: Any) -> Any:
    """`value` as the given type; UserError for one of another type, or beyond its limits."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        what, _, place = str(error).partition(" - at `$")
        for option in place.partition("[")[0].strip("`").split(".")[1:]:  # fields of dataclasses
            name, value = f"{name}.{option}".lstrip("."), value[option]
        for pattern, words in IN_WORDS.items():
            what = what.replace(pattern, words)
        what = re.sub(r"str matching regex '\^\((.+)\)\$'", r"\1", what.replace("`", "")).replace("|", " or ")
        typed = shortened(value if isinstance(value, str) else literal(value))
        raise UserError(f"{name}={typed}: {what[:1].lower()}{what[1:]}") from None


def checked(values: dict[str, Any]) -> RunConfig:
    """The config with these values; UserError about the first that its field does not allow: OmegaConf knows no limits,
    and takes a list for a number that is in a list."""
    for group, kind in (("dataset", DatasetConfig), ("method", MethodConfig), ("training", TrainingConfig)):
        for name, node in values[group].items():
            converted(f"{group}.{name}", node, kind)
    return converted("", values, RunConfig)
