"""Predictions of a trained model, or of a mixture of models, in the user's units and labels."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.core.gp.kernels import KERNELS, Kernel, kernel_named
from dlmexp.core.gp.mixed_kernels import is_mixed
from dlmexp.core.gp.precision import PARAMETER_DTYPE
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.likelihoods.mixture import Mixture, predictive_likelihood
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.prediction import ComponentPredictor, MarginalPredictor
from dlmexp.data.schema import Label
from dlmexp.experiment.models.file import TrainedCell
from dlmexp.experiment.plan.cell import Cell

BISECTIONS = 60
"""The number of steps after which a bisection has the precision of float64."""
USUAL_LEVEL = 0.95
"""The probability of the intervals of likelihoods (`Likelihood.interval`)."""
SMALLEST_STEP = 1e-9
"""The step by which an interval of width 0 is widened first."""
SMALLEST_SHARE = 1e-9
"""The least probability at which a random quantile is taken: the quantile at 0 may be infinite."""
LARGEST_PARAMETER = 1e150
"""Positive parameters must be smaller, so that their squares are finite."""

Columns = dict[str, np.ndarray]
"""Columns of predictions by name, [rows] each."""
Marginals = tuple[Float[Tensor, "1 *K N"], Float[Tensor, "1 *K N"]]
"""Mean mu and variance v of q(f) at N rows; if q is a mixture, for each of its K components."""


def _predicts_variance(model: TrainedCell) -> bool:
    """Return whether the predicted variance of a model has a meaning.

    This is known from the objective. If the objective is defined by a plugin that is not loaded,
    which predictions do not need, it is seen from q: its covariance is 0 if the objective does not
    train a variance.
    """
    name = model.cell.objective
    if name in OBJECTIVES:
        return OBJECTIVES[name].predicts_variance
    return bool(model.L.any())


def checked_kernel(model: TrainedCell) -> Kernel:
    """Return the kernel of a model.

    Raises:
        UserError: the plugin with the kernel or the likelihood is missing, or the hyperparameters
            of the model are not those of kernel and likelihood, or have impossible values.
    """
    cell = model.cell
    _check_plugins(cell)
    kernel = kernel_named(cell.kernel)
    likelihood = LIKELIHOODS[cell.likelihood]
    n_features = len(model.schema.features)
    parameters = {**kernel.parameters(n_features, cell.ard), **likelihood.parameters}
    for name, parameter in parameters.items():
        if name not in model.hyper or model.hyper[name].shape != parameter.shape:
            problem = (
                f"the model of cell {cell.key} does not fit its kernel '{cell.kernel}' and "
                f"likelihood '{cell.likelihood}' ('{name}'), which have changed"
            )
            raise UserError(f"{problem}: train it again")
        if parameter.positive and not _are_possible(model.hyper[name]):
            values = map("{:g}".format, np.ravel(model.hyper[name]))
            problem = (
                f"the model of cell {cell.key} is not sound: its {name} is {', '.join(values)}"
            )
            raise UserError(f"{problem}, and must be positive and below {LARGEST_PARAMETER:g}")
    return kernel


def _check_plugins(cell: Cell) -> None:
    """Raise UserError if the plugin with the kernel or the likelihood of a cell is missing."""
    has_kernel = "." in cell.kernel or is_mixed(cell.kernel) or cell.kernel in KERNELS
    if has_kernel and cell.likelihood in LIKELIHOODS:
        return
    part = f"likelihood '{cell.likelihood}'" if has_kernel else f"kernel '{cell.kernel}'"
    raise UserError(
        f"the model of cell {cell.key} needs the {part} of a plugin: name its module, "
        "dlmexp --plugins MODULE, or import it in Python"
    )


def _are_possible(values: np.ndarray) -> bool:
    """Return whether all values of a positive parameter are positive, and their squares finite."""
    is_possible = (values > 0) & (values < LARGEST_PARAMETER)
    return bool(is_possible.all())


class Member:
    """One of the models of a `Predictor`, with its tensors on a device."""

    def __init__(self, model: TrainedCell, device: str = "cpu"):
        self.model = model
        kernel = checked_kernel(model)

        def tensor(array: np.ndarray | float) -> Tensor:
            # The core computes batches of B cells: [None] adds the dimension B = 1.
            return torch.tensor(np.asarray(array)[None], dtype=PARAMETER_DTYPE, device=device)

        predictor_class = ComponentPredictor if model.is_mixture else MarginalPredictor
        self.predictor = predictor_class(
            kernel,
            hyper={name: tensor(value) for name, value in model.hyper.items()},
            m=tensor(model.m),
            L=tensor(model.L),
            jitter=tensor(model.jitter),
            row_dtype=getattr(torch, model.cell.dtype),
        )
        likelihood = LIKELIHOODS[model.cell.likelihood]
        self.likelihood = predictive_likelihood(likelihood, self.predictor.hyper, model.is_mixture)

    def marginals(self, X: Float[np.ndarray, "N D"]) -> Marginals:
        """Return mean and variance of q(f) at rows, whose features are not normalised."""
        # m is [1, K, M] if q is a mixture, else [1, M].
        components = self.predictor.m.shape[1:-1]
        mu = self.predictor.m.new_empty(1, *components, len(X))
        v = self.predictor.m.new_empty(1, *components, len(X))
        # Rows are normalised piece by piece: a copy of all of them might not fit into memory.
        rows_at_once = self.predictor.rows_at_once
        for first in range(0, len(X), rows_at_once):
            piece = slice(first, first + rows_at_once)
            rows = np.array(X[piece], dtype=np.float64)
            normalised = torch.from_numpy(self.model.normalisation.apply(rows))
            mu[..., piece], v[..., piece] = self.predictor.marginals_of_piece(normalised)
        return mu, v

    def unnormalised(self, y: Tensor) -> Tensor:
        """Return normalised targets, or predictions of them, in the original units."""
        return y * self.model.y_std + self.model.y_mean

    def moments(
        self, mu: Float[Tensor, "1 N"], v: Float[Tensor, "1 N"], has_distribution: bool
    ) -> tuple[Float[Tensor, "1 N"], Float[Tensor, "1 N"] | None]:
        """Return mean and standard deviation of a new observation, in the units of the target.

        The standard deviation is None if it is not known. A model of the logarithm of the target
        returns the moments of the target itself: those of a log-normal variable if the noise is
        Gaussian, else the median in place of the mean, and no standard deviation.
        """
        if self.model.schema.log and isinstance(self.likelihood, Mixture):
            return self._moments_of_log_mixture(self.likelihood, mu, v)
        mean = self.unnormalised(self.likelihood.mean(mu, v))
        std = self.likelihood.std(mu, v) if has_distribution else None
        if std is not None:
            std = std * self.model.y_std
        if not self.model.schema.log:
            return mean, std
        return self._moments_of_exponential(mean, std)

    def _moments_of_exponential(
        self, mean: Float[Tensor, "1 *K N"], std: Float[Tensor, "1 *K N"] | None
    ) -> tuple[Float[Tensor, "1 *K N"], Float[Tensor, "1 *K N"] | None]:
        """Return mean and standard deviation of y from mean and standard deviation of log y.

        Without Gaussian noise, or without a standard deviation, return the median of y and None.
        """
        if std is None or self.model.cell.likelihood != "gaussian":
            return mean.exp(), None
        # log y ~ N(mean, std^2): E[y] = exp(mean + std^2 / 2), Var[y] = E[y]^2 (exp(std^2) - 1)
        log_normal_mean = (mean + std.square() / 2).exp()
        return log_normal_mean, log_normal_mean * std.square().expm1().sqrt()

    def _moments_of_log_mixture(
        self, mixture: Mixture, mu: Float[Tensor, "1 K N"], v: Float[Tensor, "1 K N"]
    ) -> tuple[Float[Tensor, "1 N"], Float[Tensor, "1 N"] | None]:
        """Return mean and standard deviation of y, where log y has a mixture distribution."""
        mean = self.unnormalised(mixture.component.mean(mu, v))
        std = mixture.component.std(mu, v)
        if std is not None:
            std = std * self.model.y_std
        means, stds = self._moments_of_exponential(mean, std)
        if stds is None:
            return means.mean(-2), None
        # Var[y] = mean_k Var[y | k] + Var_k E[y | k]
        variance = stds.square().mean(-2) + means.var(-2, correction=0)
        return means.mean(-2), variance.sqrt()


@dataclass(frozen=True)
class Outputs:
    """The columns of predictions besides mean and standard deviation, or label and probabilities.

    Attributes:
        level: The probability of the central interval.
        quantiles: Probabilities of quantiles; the column `quantile_0.1` has the quantile at 0.1.
        above: Thresholds; the column `above_100` has the probability of more than 100.
        samples: The number of independent draws of a new observation: `sample_1`, ...
    """

    level: float = USUAL_LEVEL
    quantiles: tuple[float, ...] = ()
    above: tuple[float, ...] = ()
    samples: int = 0

    @property
    def needs_distribution(self) -> bool:
        """Whether quantiles, probabilities or samples are outputs."""
        return bool(self.quantiles or self.above or self.samples)


class Predictor:
    """Predicts by one model, or by a mixture of models with equal weights.

    All models of a mixture have the same schema.
    """

    def __init__(self, models: Sequence[TrainedCell], device: str = "cpu"):
        self.members = [Member(model, device) for model in models]
        self.schema = models[0].schema
        self.task = models[0].cell.task
        for model in models:
            if model.schema != self.schema:
                cells = f"the models of cells {models[0].cell.key} and {model.cell.key}"
                advice = "their tables have different columns or labels; train them on one table"
                raise UserError(f"{cells} make no mixture: {advice}")

    @cached_property
    def has_distribution(self) -> bool:
        """Whether the models predict a distribution; with square loss they predict a mean only."""
        return all(_predicts_variance(member.model) for member in self.members)

    @torch.no_grad()
    def predict(
        self,
        X: Float[np.ndarray, "N D"],
        level: float = USUAL_LEVEL,
        outputs: Outputs | None = None,
        random: np.random.Generator | None = None,
    ) -> Columns:
        """Return columns of predictions.

        For regression and counts these are `mean`, `std` and the ends `lower_95` and `upper_95` of
        the central interval with probability `level`. For binary data they are `label` and a
        probability for each label. The further columns in `outputs` follow.

        Args:
            X: Rows before normalisation.
            level: The probability of the interval, if `outputs` is None.
            outputs: The probability of the interval, and further columns.
            random: Draws the samples; None: a generator with seed 0.

        Raises:
            UserError: the models cannot predict these outputs (`check`).
        """
        outputs = outputs or Outputs(level)
        self.check(outputs)
        marginals = [member.marginals(X) for member in self.members]
        if self.schema.labels is not None:
            return self._label_columns(self.schema.labels, marginals, outputs.samples, random)
        columns = self._moments(marginals)
        quantiles = self._all_quantiles(marginals, outputs, random)
        columns |= quantiles
        for threshold in outputs.above:
            columns[f"above_{threshold:g}"] = self._probability_above(marginals, threshold)
        arrays: Columns = {}
        for name, tensor in columns.items():
            arrays[name] = tensor[0].cpu().numpy()  # without the dimension of cells
            # Quantiles of counts are whole numbers.
            if self.task == "count" and name in quantiles:
                arrays[name] = arrays[name].astype(np.int64)
        return arrays

    def _all_quantiles(
        self, marginals: list[Marginals], outputs: Outputs, random: np.random.Generator | None
    ) -> dict[str, Float[Tensor, "1 N"]]:
        """Return interval, quantiles and samples by name; empty without a distribution.

        A sample is a quantile, too: at a random probability.
        """
        if not self.has_distribution:
            return {}
        quantiles = self._interval(marginals, outputs.level)
        quantiles |= self._quantiles(marginals, outputs.quantiles)
        quantiles |= self._samples(marginals, outputs.samples, random)
        # The quantile of exp(Y) is exp(quantile of Y), unlike the mean.
        if self.schema.log:
            for name, values in quantiles.items():
                quantiles[name] = values.exp()
        return quantiles

    def check(self, outputs: Outputs) -> None:
        """Raise UserError if the models cannot predict these outputs."""
        if not 0 < outputs.level < 1:
            raise UserError(f"level {outputs.level:g}: give a share between 0 and 1, such as 0.8")
        for share in outputs.quantiles:
            if not 0 < share < 1:
                raise UserError(f"quantile {share:g}: give a share between 0 and 1, such as 0.1")
        if self.schema.labels is not None and (outputs.quantiles or outputs.above):
            raise UserError("labels have no quantiles and no order: leave quantiles and above out")
        if outputs.needs_distribution and not self.has_distribution:
            raise UserError("square loss predicts a mean only: there are no quantiles or samples")

    def _label_columns(
        self,
        labels: tuple[Label, Label],
        marginals: list[Marginals],
        samples: int,
        random: np.random.Generator | None,
    ) -> Columns:
        """Return the more probable label, the probabilities of both, and draws of labels."""
        means = []
        for member, (mu, v) in zip(self.members, marginals, strict=True):
            means.append(member.likelihood.mean(mu, v))
        mixture_mean = torch.stack(means).mean(0)
        probability = mixture_mean[0].cpu().numpy()
        first, second = labels
        columns = {
            "label": _chosen_labels(labels, probability > 0.5),
            f"probability_{first}": 1 - probability,
            f"probability_{second}": probability,
        }
        random = random or np.random.default_rng(0)
        for number in range(1, samples + 1):
            is_second = random.random(len(probability)) < probability
            columns[f"sample_{number}"] = _chosen_labels(labels, is_second)
        return columns

    def _moments(self, marginals: list[Marginals]) -> dict[str, Float[Tensor, "1 N"]]:
        """Return `mean` and, if all members have one, `std` of a new observation."""
        means = []
        stds = []
        for member, (mu, v) in zip(self.members, marginals, strict=True):
            member_mean, member_std = member.moments(mu, v, self.has_distribution)
            means.append(member_mean)
            if member_std is not None:
                stds.append(member_std)
        member_means = torch.stack(means)
        mean = member_means.mean(0)
        if len(stds) < len(means):
            return {"mean": mean}
        # Var[y] = E[Var[y | member]] + Var[E[y | member]]
        member_variances = torch.stack(stds).square()
        variance = (member_variances + (member_means - mean).square()).mean(0)
        return {"mean": mean, "std": variance.sqrt()}

    def _interval(
        self, marginals: list[Marginals], level: float
    ) -> dict[str, Float[Tensor, "1 N"]]:
        """Return the ends of the central interval by name; empty if the likelihood has none."""
        member = self.members[0]
        mu, v = marginals[0]
        interval = member.likelihood.interval(mu, v)
        if interval is None:
            return {}
        # A single likelihood has its usual interval in closed form.
        if len(self.members) == 1 and level == USUAL_LEVEL:
            lower = member.unnormalised(interval[0])
            upper = member.unnormalised(interval[1])
        else:
            shares = mu.new_tensor([(1 - level) / 2, (1 + level) / 2])
            lower, upper = self._quantiles_at(marginals, shares[:, None, None])
        percent = f"{100 * level:g}"
        return {f"lower_{percent}": lower, f"upper_{percent}": upper}

    def _quantiles_at(
        self, marginals: list[Marginals], shares: Float[Tensor, "S 1 #N"]
    ) -> Float[Tensor, "S 1 N"]:
        """Return the quantiles of a new observation at S probabilities, called shares.

        The shares are the same for all rows (dimension 1), or differ by row (dimension N).

        Raises:
            UserError: a likelihood has no quantiles.
        """
        lower_ends = []
        upper_ends = []
        for member, (mu, v) in zip(self.members, marginals, strict=True):
            interval = member.likelihood.interval(mu, v)
            if interval is None:
                raise UserError("the likelihood has no quantiles: leave them out")
            lower_ends.append(member.unnormalised(interval[0]))
            upper_ends.append(member.unnormalised(interval[1]))

        def cdf(y: Float[Tensor, "1 N"]) -> Float[Tensor, "1 N"]:
            return self._cdf(marginals, y)

        is_count = self.task == "count"
        # A quantile of a mixture lies between those of its members. So an interval that contains
        # the intervals of all members is a first guess, which `_widened` extends to all shares.
        low = torch.stack(lower_ends).amin(0)
        high = torch.stack(upper_ends).amax(0)
        if is_count:
            low = torch.zeros_like(high)
        low, high = _widened(
            cdf,
            lower_share=shares.amin(0),
            upper_share=shares.amax(0),
            low=low,
            high=high,
            is_count=is_count,
        )
        quantiles = [quantile(cdf, share, low, high, is_count) for share in shares]
        return torch.stack(quantiles)

    def _quantiles(
        self, marginals: list[Marginals], shares: tuple[float, ...]
    ) -> dict[str, Float[Tensor, "1 N"]]:
        """Return quantiles by name."""
        if not shares:
            return {}
        mu, _ = marginals[0]
        column_of_shares = mu.new_tensor(shares)[:, None, None]
        values = self._quantiles_at(marginals, column_of_shares)
        names = [f"quantile_{share:g}" for share in shares]
        return dict(zip(names, values, strict=True))

    def _samples(
        self, marginals: list[Marginals], count: int, random: np.random.Generator | None
    ) -> dict[str, Float[Tensor, "1 N"]]:
        """Return independent draws of a new observation by name: quantiles at random shares."""
        if not count:
            return {}
        random = random or np.random.default_rng(0)
        mu, _ = marginals[0]
        n_rows = mu.shape[-1]
        uniform = random.uniform(SMALLEST_SHARE, 1 - SMALLEST_SHARE, size=(count, 1, n_rows))
        shares = torch.as_tensor(uniform).to(mu)
        samples = self._quantiles_at(marginals, shares)
        return {f"sample_{number}": sample for number, sample in enumerate(samples, start=1)}

    def _probability_above(
        self, marginals: list[Marginals], threshold: float
    ) -> Float[Tensor, "1 N"]:
        """Return P(Y > threshold) for a new observation in the units of the targets."""
        mu, _ = marginals[0]
        n_rows = mu.shape[-1]
        if self.schema.log:
            if threshold <= 0:
                return mu.new_ones(1, n_rows)  # exp(Y) > 0 always
            threshold = float(np.log(threshold))
        return 1 - self._cdf(marginals, mu.new_full((1, n_rows), threshold))

    def _cdf(self, marginals: list[Marginals], y: Float[Tensor, "1 N"]) -> Float[Tensor, "1 N"]:
        """Return P(Y <= y) under the mixture of the members."""
        total = torch.zeros_like(y)
        for member, (mu, v) in zip(self.members, marginals, strict=True):
            normalised = (y - member.model.y_mean) / member.model.y_std
            total += member.likelihood.cdf(mu, v, normalised)
        return total / len(self.members)


def _chosen_labels(labels: tuple[Label, Label], is_second: Bool[np.ndarray, " N"]) -> np.ndarray:
    """Return the first or the second label for each row.

    If both labels are whole numbers, the array has integers, else objects.
    """
    # With this dtype, NumPy does not convert labels of different types to a common type.
    first = np.array(labels[0], dtype=object)
    second = np.array(labels[1], dtype=object)
    chosen = np.where(is_second, second, first)
    are_numbers = all(isinstance(label, int) for label in labels)
    return chosen.astype(int) if are_numbers else chosen


def _widened(
    cdf: Callable[[Tensor], Tensor],
    lower_share: float | Tensor,
    upper_share: float | Tensor,
    low: Tensor,
    high: Tensor,
    is_count: bool,
) -> tuple[Tensor, Tensor]:
    """Return intervals that contain the quantiles at two shares, for all rows.

    The ends of all intervals move outwards by steps that double. For counts the lower ends stay:
    they are 0.

    Args:
        cdf: P(Y <= y).
        lower_share: The probability of the lower quantile.
        upper_share: The probability of the upper quantile.
        low: The lower ends to begin with.
        high: The upper ends to begin with.
        is_count: Whether y is a count.
    """
    step = (high - low).clamp(min=1 if is_count else SMALLEST_STEP)
    while True:
        is_outside = cdf(high) < upper_share
        if not is_count:
            is_outside |= cdf(low) >= lower_share
        if not bool(is_outside.any()):
            return low, high
        if not is_count:
            low = low - step
        high = high + step
        step = 2 * step


def quantile(
    cdf: Callable[[Tensor], Tensor],
    share: float | Tensor,
    low: Tensor,
    high: Tensor,
    is_count: bool,
) -> Tensor:
    """Return the least y in [low, high] with cdf(y) >= share, by bisection in every row.

    Args:
        cdf: P(Y <= y).
        share: The probability, or one per row.
        low: The lower ends.
        high: The upper ends, where cdf(high) >= share.
        is_count: Whether y is a count; otherwise y has the precision of float64.
    """
    # The bisection keeps cdf(low) < share <= cdf(high). For counts it starts at low = -1, where
    # the cdf is 0.
    if is_count:
        low = low - 1
    for _ in range(BISECTIONS):
        if is_count and not bool((high - low > 1).any()):
            break
        middle = (low + high) / 2
        if is_count:
            middle = middle.floor()
        is_above = cdf(middle) >= share
        low = torch.where(is_above, low, middle)
        high = torch.where(is_above, middle, high)
    return high


def errors_in_target_units(columns: Columns, targets: Float[np.ndarray, " N"]) -> dict[str, float]:
    """Return errors of predictions on rows with known targets, in the units of the targets.

    Returns:
        RMSE and MAE, R2 unless all targets are equal, and the coverage of the 95 % interval if the
        predictions have one.
    """
    residuals = targets - columns["mean"]
    rmse = float(np.sqrt(np.mean(residuals**2)))
    mae = float(np.abs(residuals).mean())
    errors = {"rmse": rmse, "mae": mae}
    variance = float(targets.var())
    if variance > 0:
        errors["r2"] = 1 - rmse**2 / variance
    if "lower_95" in columns:
        is_inside = (columns["lower_95"] <= targets) & (targets <= columns["upper_95"])
        errors["coverage_95"] = float(np.mean(is_inside))
    return errors
