"""Check the arguments of `dlmexp.fit`, and convert them to objects and tensors.

Every function raises `UserError` for a value that can't be used, in one line with the name of the
argument. Functions `check_...` return nothing, functions `checked_...` the converted value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError, nearest
from dlmexp.core.estimators import ESTIMATORS, Estimator, Exact, Quadrature
from dlmexp.core.folds import row_order
from dlmexp.core.gp.inducing import INDUCING
from dlmexp.core.gp.kernels import Parameter
from dlmexp.core.objectives import OBJECTIVES, Objective
from dlmexp.core.training.data import Minibatches
from dlmexp.core.training.initial import LENGTHSCALES
from dlmexp.core.training.model import Loss, Model
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.stopping import CRITERIA

DTYPES = {"float64": torch.float64, "float32": torch.float32}
MAX_TEXT = 60
"""The most characters of a value that a message repeats."""
Part = tuple[Float[Tensor, "S T D"], Float[Tensor, "S T"]]
"""Inputs and targets of "validation" or "test", for S splits."""


@dataclass(frozen=True)
class Splits:
    """The rows of S splits, and their seeds.

    Attributes:
        X: Training inputs.
        y: Training targets.
        parts: Inputs and targets of "validation" and "test", if there are any.
        seeds: The seed of each split.
    """

    X: Float[Tensor, "S N D"]
    y: Float[Tensor, "S N"]
    parts: dict[str, Part]
    seeds: list[int]


def checked_splits(
    X: Any,
    y: Any,
    seeds: int | Sequence[int] | None,
    parts: Mapping[str, tuple[Any, Any] | None],
    task: str,
) -> Splits:
    """Return the rows of every split as float64 tensors.

    One data set [n, D] becomes one split per seed, with its rows in the order of the seed.

    Args:
        X: Training inputs [n, D] or [S, n, D].
        y: Training targets [n] or [S, n].
        seeds: The seeds; None: 0, or 0 to S - 1.
        parts: Inputs and targets of "validation" and "test"; None: there are none.
        task: "regression", "binary" or "count".
    """
    X = _float64("X", X)
    y = _float64("y", y)
    if X.ndim not in (2, 3):
        raise UserError(f"X has shape {list(X.shape)}: give [n, D], or [S, n, D] for S splits")
    _check_rows("X", X, "y", y, task)
    split_count = len(X) if X.ndim == 3 else None
    seed_by_split = checked_seeds(seeds, split_count)
    checked_parts = {}
    for name, part in parts.items():
        if part is not None:
            checked_parts[name] = _checked_part(name, part, X, len(seed_by_split), task)
    if X.ndim == 2:
        # [S, n]: the order of the rows in each split
        orders = torch.from_numpy(np.stack([row_order(len(X), seed) for seed in seed_by_split]))
        X = X[orders]
        y = y[orders]
    return Splits(X, y, checked_parts, seed_by_split)


def checked_seeds(seeds: int | Sequence[int] | None, split_count: int | None) -> list[int]:
    """Return one seed per split.

    `split_count` is None for a single data set, which becomes one split per seed.
    """
    if seeds is None:
        return list(range(split_count or 1))
    values: list[Any] = [seeds] if isinstance(seeds, int) else list(seeds)
    for seed in values:
        if not _is_integer(seed) or seed < 0:
            raise UserError(f"seeds={_text(seeds)}: give whole numbers >= 0")
    has_duplicates = len(set(values)) < len(values)
    if not values or has_duplicates:
        raise UserError(f"seeds={_text(seeds)}: give at least one seed, and each of them once")
    if split_count is not None and len(values) != split_count:
        raise UserError(
            f"seeds={_text(seeds)}: X has {split_count} splits; "
            "give one seed for each, or leave it out"
        )
    return list(map(int, values))


def checked_betas(betas: float | Sequence[float], objective: Objective) -> list[float]:
    """Return the betas as numbers."""
    values: list[Any] = [betas] if isinstance(betas, Real) else list(np.atleast_1d(betas))
    all_valid = all(_is_number(beta) and beta >= 0 for beta in values)
    if not values or not all_valid:
        raise UserError(f"betas={_text(betas)}: give numbers >= 0")
    if not objective.has_beta and any(beta != 1 for beta in values):
        raise UserError(f"betas={_text(betas)}: objective '{objective.name}' has no beta")
    return list(map(float, values))


def checked_loss(objective: Any, estimator: Any, model: Model) -> Loss:
    """Return the loss of an objective and an estimator; both may be names or objects."""
    if isinstance(objective, str):
        objective = OBJECTIVES[objective].with_options({})
    if not isinstance(objective, Objective):
        raise UserError(f"objective={_text(objective)}: give a name or an Objective")
    if not objective.fits(model.likelihood):
        raise UserError(
            f"objective '{objective.name}' needs Gaussian noise: give likelihood='gaussian'"
        )
    if estimator is None:
        return Loss(objective, Exact())
    if not objective.takes_estimator:
        raise UserError(f"objective '{objective.name}' takes no estimator: leave it out")
    if isinstance(estimator, str):
        estimator = _estimator_named(estimator)
    if not isinstance(estimator, Estimator):
        raise UserError(f"estimator={_text(estimator)}: give a name or an Estimator")
    estimator.check(model.likelihood)
    return Loss(objective, estimator)


def check_leave_one_out(
    argument: str, objective: Objective, model: Model, uses_closed_form: bool
) -> None:
    """Check that each row can be predicted from all others, by the closed form over q.

    Raises:
        UserError: There is no closed form; the message begins with `argument`, such as "cv=loo".
    """
    if not (uses_closed_form and objective.leaves_one_out(model.likelihood)):
        raise UserError(
            f"{argument} needs a closed form over q, which objective '{objective.name}' does not "
            "have here; give a number of folds, such as cv=5"
        )


def _estimator_named(name: str) -> Estimator:
    """Return the estimator of that name with its default options.

    Raises:
        UserError: Some of its options have no default.
    """
    estimator_class = ESTIMATORS[name]
    try:
        return estimator_class()
    except TypeError:
        raise UserError(
            f"estimator='{name}' has options without a default: "
            f"give an object, such as {estimator_class.__name__}(samples=10)"
        ) from None


def checked_model(model: Any, loss: Loss, n: int) -> Model:
    """Return the model with a number as its M, checked for n training rows."""
    needs_all_rows = loss.objective.all_rows_inducing
    M = n if needs_all_rows and model.M is None else model.inducing_count(n)
    if not _is_integer(M) or M < 1:
        raise UserError(f"M={_text(M)}: give a whole number > 0")
    if n < M:
        raise UserError(f"M={M}: give at most {n}, the number of training rows")
    if needs_all_rows and n != M:
        raise UserError(f"M={M}: objective '{loss.objective.name}' needs M = n, {n}; leave it out")
    check_components(model, loss)
    if model.inducing not in INDUCING:
        raise UserError(f"inducing={_text(model.inducing)}: give one of {', '.join(INDUCING)}")
    _check_pilot(model)
    return replace(model, M=int(M))


def _check_pilot(model: Model) -> None:
    """Check the number of evaluations of the pilot fit, and that the likelihood allows a pilot."""
    if not _is_integer(model.pilot) or model.pilot < 0:
        raise UserError(f"pilot={_text(model.pilot)}: give a whole number >= 0")
    if model.pilot and not model.likelihood.conjugate:
        raise UserError("pilot: a pilot fit needs Gaussian noise; leave it out")


def check_components(model: Model, loss: Loss) -> None:
    """Check that q can be a mixture of as many Gaussians as the model says."""
    K = model.components
    if not _is_integer(K) or K < 1:
        raise UserError(f"components={_text(K)}: give a whole number > 0")
    if K == 1:
        return
    if loss.objective.mixture_loss is None:
        raise UserError(
            f"components={K}: objective '{loss.objective.name}' takes one Gaussian; "
            "give objective='log_dlm'"
        )
    if not model.whitened:
        raise UserError(f"components={K}: a mixture is always whitened; leave whitened out")
    if not isinstance(loss.estimator, Exact | Quadrature):
        raise UserError(
            f"components={K}: estimator '{loss.estimator.name}' draws samples; "
            "give exact or quadrature"
        )


def check_initial(model: Model, D: int) -> None:
    """Check names and values of the model's initial hyperparameters, for D features."""
    parameters = model.parameters(D)
    initial: Mapping[str, Any] = model.initial
    for name, value in initial.items():
        if name not in parameters:
            raise UserError(f"initial={{'{name}': ...}}: {nearest(name, list(parameters))}")
        is_rule = name == "lengthscale" and value in LENGTHSCALES
        if not is_rule:
            _check_initial_value(name, value, parameters[name])


def _check_initial_value(name: str, value: Any, parameter: Parameter) -> None:
    """Check that a hyperparameter can start at a value."""
    if not isinstance(value, Real) or not isfinite(value):
        alternatives = f", or {' or '.join(LENGTHSCALES)}" if name == "lengthscale" else ""
        raise UserError(f"initial={{'{name}': {_text(value)}}}: give a number{alternatives}")
    if parameter.positive and value <= parameter.floor:
        raise UserError(f"initial={{'{name}': {value:g}}}: give a number > {parameter.floor:g}")


def check_settings(settings: Settings) -> None:
    """Check that the values of the settings are allowed; None stands for an unused option."""
    for name in ("lr", "epsilon", "final_lr", "resolution"):
        value = getattr(settings, name)
        is_positive = _is_number(value) and value > 0
        if value is not None and not is_positive:
            raise UserError(f"Settings({name}={_text(value)}): give a number > 0")
    for name in ("iterations", "window", "evaluate_every", "check_every", "decay", "split_at"):
        value = getattr(settings, name)
        is_count = _is_integer(value) and value > 0
        if value is not None and not is_count:
            raise UserError(f"Settings({name}={_text(value)}): give a whole number > 0")
    _check_stopping(settings)
    _check_optimizer(settings)


def _check_stopping(settings: Settings) -> None:
    """Check the stopping rule."""
    if not _is_number(settings.tolerance) or settings.tolerance < 0:
        raise UserError(f"Settings(tolerance={_text(settings.tolerance)}): give a number >= 0")
    if settings.criterion not in CRITERIA:
        raise UserError(
            f"Settings(criterion={_text(settings.criterion)}): give one of {', '.join(CRITERIA)}"
        )


def _check_optimizer(settings: Settings) -> None:
    """Check the optimiser, its restarts, and the decay of the learning rate."""
    if settings.optimizer not in ("adam", "lbfgs"):
        raise UserError(f"Settings(optimizer={_text(settings.optimizer)}): give adam or lbfgs")
    if not _is_integer(settings.restarts) or settings.restarts < 0:
        raise UserError(f"Settings(restarts={_text(settings.restarts)}): give a whole number >= 0")
    if settings.restarts and settings.optimizer != "lbfgs":
        raise UserError("Settings(restarts=...): only L-BFGS restarts; give optimizer='lbfgs' too")
    if (settings.decay is None) != (settings.final_lr is None):
        raise UserError("Settings: give decay and final_lr together")


def checked_minibatches(minibatches: Any, n: int, uses_closed_form: bool) -> Minibatches | None:
    """Return the minibatches, of which a user may give the size alone; None: steps take all rows.

    n is the number of training rows.
    """
    if minibatches is None:
        return None
    if not isinstance(minibatches, Minibatches):
        minibatches = Minibatches(minibatches)
    size = minibatches.size
    if not _is_integer(size) or size < 1 or size > n:
        raise UserError(f"minibatches={_text(size)}: give a number of rows, 1 to {n}")
    if uses_closed_form:
        raise UserError(
            f"minibatches={size}: a closed form over q takes all rows; "
            "leave minibatches out, or give collapsed=False"
        )
    return minibatches


def checked_hyperparameters(
    hyperparameters: Any, model: Model, split_count: int, n: int, D: int
) -> dict[str, Tensor]:
    """Return the hyperparameters to hold fixed, with a leading dimension of splits.

    n is the number of training rows, D that of features.
    """
    M = model.inducing_count(n)
    shapes: dict[str, tuple[int, ...]] = {"mean": (), "Z": (M, D)}
    for name, parameter in model.parameters(D).items():
        shapes[name] = tuple(parameter.shape)
    is_shared = isinstance(hyperparameters, Mapping)
    by_split = [hyperparameters] * split_count if is_shared else list(hyperparameters)
    if len(by_split) != split_count:
        raise UserError(
            f"hyperparameters: give one mapping, or one for each of {split_count} seeds"
        )
    checked: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        values_by_split = [_hyperparameter(values, name, shape) for values in by_split]
        checked[name] = torch.stack(values_by_split)
    return checked


def _hyperparameter(values: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Tensor:
    """Return the value of a name among the values; of the prior mean, which is optional, else 0."""
    if name not in values and name != "mean":
        raise UserError(f"hyperparameters['{name}'] is missing")
    value = _float64(f"hyperparameters['{name}']", values.get(name, 0.0))
    if tuple(value.shape) != shape or not value.isfinite().all():
        raise UserError(
            f"hyperparameters['{name}'] has shape {list(value.shape)}: "
            f"give finite numbers {list(shape)}"
        )
    return value


def rows_to_predict(X: Any, D: int) -> Float[Tensor, "N D"]:
    """Return rows at which to predict, checked to have D features, as a float64 tensor."""
    rows = _float64("X", X)
    if rows.ndim != 2 or rows.shape[1] != D:
        raise UserError(f"X has shape {list(rows.shape)}: give [N, {D}]")
    _check_finite("X", rows)
    return rows


def _checked_part(name: str, part: Any, X: Tensor, split_count: int, task: str) -> Part:
    """Return inputs and targets of a part ("validation" or "test") of every split.

    X are the training inputs. If they are a single data set, the part is the same in all splits.
    """
    if not isinstance(part, tuple | list) or len(part) != 2:
        raise UserError(f"{name}: give a pair ({name}_X, {name}_y)")
    rows = _float64(f"{name}[0]", part[0])
    targets = _float64(f"{name}[1]", part[1])
    if not _equal_but_for_rows(rows.shape, X.shape):
        expected_shape = [*X.shape[:-2], "T", X.shape[-1]]
        expected = ", ".join(map(str, expected_shape))
        raise UserError(f"{name}[0] has shape {list(rows.shape)}: give [{expected}], as in X")
    _check_rows(f"{name}[0]", rows, f"{name}[1]", targets, task)
    if X.ndim == 2:
        rows = rows.expand(split_count, *rows.shape)
        targets = targets.expand(split_count, *targets.shape)
    return rows, targets


def _equal_but_for_rows(shape1: torch.Size, shape2: torch.Size) -> bool:
    """Return whether two shapes [..., rows, features] are equal but for the number of rows."""
    if len(shape1) != len(shape2):
        return False
    return shape1[:-2] == shape2[:-2] and shape1[-1] == shape2[-1]


def _check_rows(name_X: str, X: Tensor, name_y: str, y: Tensor, task: str) -> None:
    """Check that the shapes of inputs and targets match, and that the task allows the targets."""
    if y.shape != X.shape[:-1]:
        raise UserError(
            f"{name_y} has shape {list(y.shape)}: {name_X} has shape {list(X.shape)}, "
            f"so give {list(X.shape[:-1])}"
        )
    if not X.numel():
        raise UserError(f"{name_X} has shape {list(X.shape)}: it is empty")
    _check_finite(name_X, X)
    _check_finite(name_y, y)
    if task == "binary" and not ((y == 0) | (y == 1)).all():
        raise UserError(f"{name_y} has values other than 0 and 1, the two classes")
    if task == "count" and (y < 0).any():
        raise UserError(f"{name_y} has counts below 0: give numbers >= 0")


def _check_finite(name: str, values: Tensor) -> None:
    """Check that all values are finite numbers."""
    if not values.isfinite().all():
        raise UserError(f"{name} has values that are NaN or infinite: remove or impute them first")


def _float64(name: str, values: Any) -> Tensor:
    """Return an array or tensor as a float64 tensor on the CPU."""
    try:
        if isinstance(values, Tensor):
            return values.detach().to("cpu", torch.float64)
        return torch.tensor(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        raise UserError(f"{name} is not an array of numbers") from None


def _is_number(value: Any) -> bool:
    """Return whether a value is a finite real number, not True or False."""
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def _is_integer(value: Any) -> bool:
    """Return whether a value is a whole number, not True or False."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _text(value: object) -> str:
    """Return the text of a value in one line, for a message; a long text is cut off."""
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
