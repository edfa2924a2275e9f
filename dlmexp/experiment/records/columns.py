"""The schema of the tidy table: the meaning, type, unit and role of each column.

`COLUMNS` is the only list of columns: tables are built and checked by it, and docs/api.md repeats
it. Plugins may add metrics, hyperparameters and options of estimators; `column_named` describes
such a column by its name.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal

Role = Literal[
    "identity",  # dataset, method, seed and other columns that tell rows apart
    "selection",  # how the row was selected, and from how many candidates
    "request",  # facts about the runs that requested the cell
    "setting",  # fields of the cell
    "option",  # options of its gradient estimator
    "result",  # results of training other than metrics
    "test",  # metrics on test rows
    "validation",  # metrics on validation rows
    "trivial",  # metrics of a predictor that knows only the training targets
    "hyperparameter",
    "provenance",
    "internal",  # not in tables for users
]


@dataclass(frozen=True)
class TableColumn:
    """A column of the tidy table; a value that does not apply is missing.

    Attributes:
        name: The name in the table.
        type: The type of its values.
        role: The group of columns that it belongs to. (The column named `role` is something else:
            what a cell was run for.)
        meaning: A phrase for the documentation.
        unit: The unit of its values; '' where they have none.
    """

    name: str
    type: type[str] | type[int] | type[float] | type[bool]
    role: Role
    meaning: str
    unit: str = ""


@dataclass(frozen=True)
class Metric:
    """A metric, with a column for each part in `parts`, such as `test_nll`.

    Attributes:
        name: The name without the part, such as `nll`.
        meaning: A phrase for the documentation.
        unit: The unit of its values; '' where they have none.
        parts: Some of the parts in `PARTS`.
    """

    name: str
    meaning: str
    unit: str
    parts: tuple[str, ...]


PARTS: dict[str, Role] = {
    "validation": "validation",
    "test": "test",
    "trivial_validation": "trivial",
    "trivial_test": "trivial",
}
"""Parts, with which the names of metric columns begin, and the role of these columns.

A part is a part of the data; `trivial_` before it stands for the trivial predictor.
"""

EVERY_PART = tuple(PARTS)
MODEL_PARTS = ("validation", "test")  # without the trivial predictor
TEST_PART = ("test",)
# Units
SCALED = "standard deviations of the target"
SCALED_OR_COUNTS = f"{SCALED}; for count data, counts"
METRICS = (
    Metric("nll", "negative log likelihood (SPEC, 7)", "nats per row", EVERY_PART),
    Metric("mse", "mean squared error; regression", f"squared {SCALED}", EVERY_PART),
    Metric("error", "share of wrong classes; binary data", "", EVERY_PART),
    Metric("mre", "mean relative error; counts", "", EVERY_PART),
    Metric("crps", "continuous ranked probability score", SCALED_OR_COUNTS, EVERY_PART),
    Metric("coverage_50", "share of rows inside the central 50 % interval", "", EVERY_PART),
    Metric("width_50", "mean width of the central 50 % interval", SCALED, EVERY_PART),
    Metric("coverage_90", "share of rows inside the central 90 % interval", "", EVERY_PART),
    Metric("width_90", "mean width of the central 90 % interval", SCALED, EVERY_PART),
    Metric("coverage_95", "share of rows inside the central 95 % interval", "", EVERY_PART),
    Metric("width_95", "mean width of the central 95 % interval", SCALED_OR_COUNTS, EVERY_PART),
    Metric("brier", "Brier score; binary data", "", EVERY_PART),
    Metric("ece", "expected calibration error; binary data", "", EVERY_PART),
    Metric("recalibrated_nll", "`nll` after recalibration", "nats per row", MODEL_PARTS),
    Metric("recalibrated_crps", "`crps` after recalibration; regression", SCALED, MODEL_PARTS),
    Metric(
        "recalibrated_coverage_95", "`coverage_95` after recalibration; regression", "", MODEL_PARTS
    ),
    Metric("rmse", "root mean squared error; user tables", "units of the target", TEST_PART),
    Metric("mae", "mean absolute error; user tables", "units of the target", TEST_PART),
    Metric("r2", "coefficient of determination; user tables", "", TEST_PART),
    Metric("auc", "area under the ROC curve; binary user tables", "", TEST_PART),
    Metric("base_rate", "share of class 1; binary user tables", "", TEST_PART),
    Metric("deviance", "mean Poisson deviance; user tables of counts", "", TEST_PART),
    Metric(
        "dispersion", "squared error / predicted variance; user tables of counts", "", TEST_PART
    ),
)


def _metric_columns() -> list[TableColumn]:
    """Return a column for each metric and part of the data."""
    columns = []
    for part, metric in product(PARTS, METRICS):
        if part in metric.parts:
            name = f"{part}_{metric.name}"
            columns.append(TableColumn(name, float, PARTS[part], metric.meaning, metric.unit))
    return columns


ROWS = "rows"
ITERATIONS = "iterations"
SECONDS = "seconds"
SQUARED_GRADIENT = "squared norm of a gradient"

COLUMNS: list[TableColumn] = [
    TableColumn("dataset", str, "identity", "name of the dataset"),
    TableColumn("stands_for", str, "identity", "the paper's dataset that it stands in for"),
    TableColumn("task", str, "identity", "`regression`, `binary` or `count`"),
    TableColumn("n", int, "identity", "training rows", ROWS),
    TableColumn("size", str, "identity", "the training size as typed: `100`, `5%`"),
    TableColumn("seed", int, "identity", "number of the repetition"),
    TableColumn("method", str, "identity", "name of the method (`conf/method`)"),
    TableColumn("estimator", str, "identity", "estimator of the log loss (SPEC, 4)"),
    TableColumn("samples", float, "identity", "samples per row that the estimator draws"),
    TableColumn("parameterisation", str, "identity", "of q: `whitened` or `unwhitened`"),
    TableColumn(
        "role",
        str,
        "identity",
        "what the cell was run for: `fit`, `curve`, `gradient`, or as its experiment says",
    ),
    TableColumn("protocol", str, "identity", "the protocol (SPEC, 6), with its preset"),
    TableColumn("changes", str, "identity", "values that differ from the protocol's, as typed"),
    TableColumn("selected_by", str, "selection", "the validation metric: `nll` or `mse`"),
    TableColumn("beta", float, "selection", "the selected weight of the penalty"),
    TableColumn("candidates", int, "selection", "cells to select from"),
    TableColumn("missing", int, "selection", "candidates without a record"),
    TableColumn("failed", int, "selection", "candidates that failed"),
    TableColumn("edge", str, "selection", "`smallest` or `largest` where beta is at an end"),
    TableColumn("status", str, "selection", "`done`, `failed` or `incomplete`"),
    TableColumn("key", str, "selection", "key of the selected cell"),
    TableColumn("smallest_beta", float, "internal", "the smallest beta of all candidates"),
    TableColumn("largest_beta", float, "internal", "the largest beta of all candidates"),
    TableColumn("group", int, "internal", "number of the selection that a row belongs to"),
    TableColumn(
        "selection", str, "request", "the metric that selects beta: `reported`, or `nll` always"
    ),
    TableColumn("experiment", str, "request", "the experiments that requested the cell"),
    TableColumn("kind", str, "setting", "what the cell computes: `fit` or `gradient`"),
    TableColumn("data", str, "setting", "checksum of the data"),
    TableColumn("split", str, "setting", "kind and version of the split"),
    TableColumn("likelihood", str, "setting", "likelihood (SPEC, 3)"),
    TableColumn("kernel", str, "setting", "kernel"),
    TableColumn("ard", bool, "setting", "whether every feature has a lengthscale of its own"),
    TableColumn("mean", str, "setting", "prior mean: `zero` or `constant`"),
    TableColumn("M", int, "setting", "inducing inputs"),
    TableColumn("objective", str, "setting", "objective (SPEC, 2)"),
    TableColumn(
        "variant",
        str,
        "setting",
        "whether hyperparameters are trained with q: `joint`; or not: `fixed`",
    ),
    TableColumn("form", str, "setting", "`collapsed` or `explicit` q"),
    TableColumn("options", str, "internal", "options of the estimator as JSON"),
    TableColumn("lr", float, "setting", "learning rate"),
    TableColumn("minibatch", int, "setting", "rows of a minibatch", ROWS),
    TableColumn("window", int, "setting", "length of the window of the stopping rule", ITERATIONS),
    TableColumn("tolerance", float, "setting", "tolerance of the stopping rule"),
    TableColumn("max_iterations", int, "setting", "limit of training", ITERATIONS),
    TableColumn(
        "epochs", int, "setting", "passes over the data, in place of a limit of iterations"
    ),
    TableColumn("evaluate", str, "setting", "when test metrics are computed: `end`, `epoch`, `10`"),
    TableColumn(
        "dtype", str, "setting", "type of arrays with an entry per row: `float64` or `float32`"
    ),
    TableColumn("base", str, "setting", "key of the base fit, whose hyperparameters are kept"),
    TableColumn(
        "initial", str, "setting", "initial hyperparameters that differ from the model's defaults"
    ),
    TableColumn("inducing", str, "setting", "how the initial inducing inputs are chosen"),
    TableColumn("minibatch_rows", str, "setting", "how minibatches are drawn"),
    TableColumn("criterion", str, "setting", "what the tolerance is compared with"),
    TableColumn("final_lr", float, "setting", "learning rate at the end of its decay"),
    TableColumn("decay", int, "setting", "length of the decay", ITERATIONS),
    TableColumn("epsilon", float, "setting", "epsilon of Adam"),
    TableColumn("resolution", float, "setting", "Adam's steps are multiples of lr * resolution"),
    TableColumn("noise_floor", float, "setting", "lower bound of the noise variance"),
    TableColumn(
        "objective_options",
        str,
        "setting",
        "options of the objective that differ from its defaults",
    ),
    TableColumn("components", int, "setting", "Gaussians that q is a mixture of"),
    TableColumn(
        "split_at", int, "setting", "when a mixture is split; missing: half-way", ITERATIONS
    ),
    TableColumn("optimizer", str, "setting", "`adam` or `lbfgs`"),
    TableColumn("restarts", int, "setting", "further starts of L-BFGS"),
    TableColumn(
        "cv",
        str,
        "setting",
        "what selects in place of validation rows: `5` folds, `holdout`, `loo`",
    ),
    TableColumn("fold", int, "internal", "number of the fold that is held out"),
    TableColumn(
        "pilot",
        int,
        "setting",
        "limit of evaluations in the ELBO fit that training starts from",
    ),
    TableColumn("iterations", int, "result", "iterations that were made", ITERATIONS),
    TableColumn("converged", bool, "result", "whether training ended before its limit"),
    TableColumn("stopped", str, "result", "why training ended"),
    TableColumn("seconds", float, "result", "training time", SECONDS),
    TableColumn(
        "recalibration_factor",
        float,
        "result",
        "factor that recalibrates predictions; under `cv` only",
    ),
    TableColumn("alone", bool, "result", "whether no other batch shared the device"),
    TableColumn("acceptance", float, "result", "share of accepted proposals of a sampler"),
    TableColumn("objective_value", float, "result", "last value of the objective", "nats per row"),
    TableColumn(
        "jitter", float, "result", "value added to the diagonal of Kuu, relative to its mean"
    ),
    TableColumn(
        "evidence_gap", float, "result", "upper bound of the gain from a larger M", "nats per row"
    ),
    TableColumn(
        "best_start",
        int,
        "result",
        "start of L-BFGS with the lowest final objective; 0: the unperturbed start",
    ),
    TableColumn(
        "restart_gain",
        float,
        "result",
        "how much lower the objective of `best_start` is than that of start 0",
        "nats per row",
    ),
    TableColumn("y_mean", float, "result", "mean of the training targets", "units of the target"),
    TableColumn(
        "y_std",
        float,
        "result",
        "standard deviation of the training targets",
        "units of the target",
    ),
    TableColumn("reason", str, "result", "why the cell failed"),
    TableColumn("note", str, "result", "what a reader of the result must know"),
    TableColumn("draws", int, "result", "number of gradients that were sampled"),
    TableColumn(
        "bias",
        float,
        "result",
        "squared distance of the mean draw from the true gradient G",
        SQUARED_GRADIENT,
    ),
    TableColumn(
        "bias_quadrature", float, "result", "`bias`, with G by quadrature", SQUARED_GRADIENT
    ),
    TableColumn(
        "norm2_G",
        float,
        "result",
        "squared norm of G, from 10 000 bMC samples",
        SQUARED_GRADIENT,
    ),
    TableColumn(
        "norm2_G_quadrature", float, "result", "`norm2_G`, with G by quadrature", SQUARED_GRADIENT
    ),
    TableColumn("version", str, "provenance", "version of dlmexp"),
    TableColumn("commit", str, "provenance", "commit of dlmexp; `+`: with uncommitted changes"),
    TableColumn("python", str, "provenance", "version of Python"),
    TableColumn("torch", str, "provenance", "version of PyTorch"),
    TableColumn("gpytorch", str, "provenance", "version of GPyTorch"),
    TableColumn("numpy", str, "provenance", "version of NumPy"),
    TableColumn("device", str, "provenance", "`cpu` or `cuda`"),
    TableColumn("host", str, "provenance", "name of the machine"),
    TableColumn("command", str, "provenance", "the command as typed"),
    TableColumn("job", str, "provenance", "job of the cluster's scheduler"),
    TableColumn(
        "plugins",
        str,
        "provenance",
        "plugins that the result depends on, with a hash of their code",
    ),
    TableColumn("time", str, "provenance", "when the record was written, UTC"),
    *_metric_columns(),
    TableColumn("hyper_lengthscale", float, "hyperparameter", "lengthscale; ARD: their mean"),
    TableColumn("hyper_outputscale", float, "hyperparameter", "outputscale of the kernel"),
    TableColumn("hyper_mean", float, "hyperparameter", "constant prior mean"),
    TableColumn("hyper_noise", float, "hyperparameter", "noise variance", f"squared {SCALED}"),
    TableColumn("nu", float, "option", "smoothing constant of `smooth_bmc`"),
    TableColumn("nodes", float, "option", "nodes of `quadrature`"),
    TableColumn("sampler", str, "option", "product sampler of `ups`, such as `auto`"),
    TableColumn(
        "predict_seconds",
        float,
        "result",
        "time to predict 10 000 rows, where `predict_seconds.csv` has it",
        SECONDS,
    ),
    TableColumn("model", str, "internal", "checksum of the trained model"),
    TableColumn("arrays", str, "internal", "checksum of the arrays"),
]


def _declared_names(role: Role) -> list[str]:
    """Return the names of the declared columns with a role."""
    return [column.name for column in COLUMNS if column.role == role]


BY_NAME = {column.name: column for column in COLUMNS}
IDENTITY = _declared_names("identity")
SELECTION = _declared_names("selection")
INTERNAL = _declared_names("internal")
SHOWN_TEST_METRICS = ["test_nll", "test_mse", "test_error", "test_mre"]
"""The test metrics that figures and closing tables show."""
USER_TABLE_METRICS = ["test_rmse", "test_mae", "test_r2", "test_coverage_95"]
"""The test metrics of user tables with numbers as targets; RMSE and MAE are in their units."""
USER_LABEL_METRICS = ["test_error", "test_auc", "test_brier", "test_base_rate", "test_nll"]
"""The test metrics of user tables with labels as targets."""

ColumnFilter = Callable[[TableColumn], bool]
"""Returns whether a column is read."""


def every_column(_: TableColumn) -> bool:
    """Return True: every column is read."""
    return True


def columns_with(names: Collection[str], roles: Collection[Role] = ()) -> ColumnFilter:
    """Return a filter for the columns with these names, and all columns with these roles."""

    def is_read(column: TableColumn) -> bool:
        return column.name in names or column.role in roles

    return is_read


def chosen_names(names: Iterable[str], is_read: ColumnFilter) -> list[str]:
    """Return the names of those columns that the filter accepts."""
    return [name for name in names if is_read(column_named(name))]


def names_with_role(names: Iterable[object], *roles: Role) -> list[str]:
    """Return the names of those columns that have one of these roles."""
    return chosen_names(map(str, names), columns_with((), roles))


def column_named(name: str) -> TableColumn:
    """Return the column with this name: a declared column, or one that a plugin has added."""
    if name in BY_NAME:
        return BY_NAME[name]
    if name.startswith("hyper_lengthscale["):
        meaning = "lengthscale of a column of a user table; inf: constant in training rows"
        return TableColumn(name, float, "hyperparameter", meaning)
    # At most one part fits, since none of the parts begins with another part.
    for part, role in PARTS.items():
        if name.startswith(f"{part}_"):
            return TableColumn(name, float, role, "metric of a plugin")
    if name.startswith("hyper_"):
        return TableColumn(name, float, "hyperparameter", "hyperparameter of a plugin")
    return TableColumn(name, str, "option", "option of a plugin's estimator")
