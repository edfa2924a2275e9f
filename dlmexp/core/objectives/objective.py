"""The class of all objectives, and the registry of their names."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.collapsed import CollapsedObjective, Moments
from dlmexp.core.gp.kernels import Hyper, Parameter
from dlmexp.core.gp.posterior import Marginals
from dlmexp.core.gp.row_noise import RowNoise
from dlmexp.core.likelihoods import Likelihood

RowLoss = Callable[
    [Likelihood, Estimator, Marginals, Tensor, Draws],
    tuple[Float[Tensor, "*B N"], Float[Tensor, "B"] | None],
]
"""row_loss(likelihood, estimator, q_f, y, draws) returns the loss per row [B, N] for marginals
q_f of f_i and targets y [B, N]. It also returns the share of proposals that a rejection sampler
accepted, per cell [B], or None without such a sampler."""

Regulariser = Callable[[Float[Tensor, "B M"], Float[Tensor, "B M M"]], Float[Tensor, "B"]]
"""regulariser(m, L) returns the penalty of q(w) = N(m, L L^T) in whitened coordinates."""

SolutionPath = Callable[
    [Moments, Float[Tensor, "K"]], tuple[Float[Tensor, "S K M"], Float[Tensor, "S K"]]
]
"""path(moments, betas) returns the mean of the best q for S splits and K betas, and the minima of
the objective."""

RowOrder = Callable[[Float[Tensor, "N D"]], Int[Tensor, "N"]]
"""row_order(X) returns the numbers of the rows in the order that the objective needs."""

NO_PENALTY_NOTE = (
    "beta = 0: without a penalty there may be no minimiser, or more than one; "
    "this is where training stopped"
)


@dataclass(frozen=True)
class Notes:
    """Why joint fits with an objective have no minimiser, as sentences for readers of the fits.

    A joint fit learns hyperparameters, inducing inputs and q. A note that does not apply is
    None.

    Attributes:
        joint: The note on all joint fits, which replaces the other notes.
        binary: The note on joint fits to binary data.
        regression_below_one: The note on joint regression fits with beta < 1.
    """

    joint: str | None = None
    binary: str | None = None
    regression_below_one: str | None = None

    def of_joint_fit(self, beta: float | None, task: str) -> str | None:
        """Return the note on a joint fit; None if no note applies.

        `beta` is None for an objective without a beta.
        """
        if self.joint is not None:
            return self.joint
        if beta == 0:
            return NO_PENALTY_NOTE
        if task == "regression" and beta is not None and beta < 1:
            return self.regression_below_one
        return self.binary if task == "binary" else None


@dataclass(frozen=True)
class Option:
    """A number that users may set for an objective, as `method.NAME.options.OPTION=`.

    Attributes:
        default: The value unless users set another one.
        low: The smallest allowed value.
        high: The largest allowed value.
        whole: Whether only whole numbers are allowed.
    """

    default: float
    low: float
    high: float
    whole: bool = False

    def check(self, name: str, value: float) -> None:
        """Raise a `UserError` if `value` is not allowed.

        `name` is how the message calls the option.
        """
        # The limits are checked first, as `int` fails for infinite values and NaN.
        is_within_limits = self.low <= value <= self.high
        is_valid = is_within_limits and (not self.whole or value == int(value))
        if not is_valid:
            kind = "a whole number" if self.whole else "a number"
            limits = f"from {self.low:g} to {self.high:g}"
            raise UserError(f"{name}={value:g}: give {kind} {limits}")


@dataclass(frozen=True)
class Objective:
    """What training minimises: `sum_i row_loss_i + beta * regulariser(m, L)`.

    Training divides this sum by the number of rows (docs/SPEC.md, section 2). Where the best q has
    a closed form, `collapsed` returns the minimum of the sum over q. Most new objectives need only
    `row_loss`, `regulariser` and `takes_estimator`.

    Attributes:
        name: The name that users type.
        row_loss: The loss per row; None if the objective exists in closed form only.
        regulariser: The penalty of q, which beta weighs.
        collapsed: The minimum over q, for Gaussian noise.
        path: The solutions at all betas at once, where the hyperparameters are held.
        takes_estimator: Whether the loss contains -log E_q p(y|f), which any estimator can compute.
        has_beta: Whether beta weighs the penalty; otherwise beta is always 1.
        needs_gaussian: Whether the objective is defined for Gaussian noise only.
        predicts_variance: Whether predictions have a variance; otherwise there is no NLL, and the
            MSE selects beta.
        gives_hyperparameters: Whether fits that learn q alone can take their hyperparameters from
            its joint fit with beta = 1.
        bounds_evidence: Whether `collapsed`, with beta = 1 and Gaussian noise, is an upper bound of
            minus the log evidence of the exact Gaussian process, which a larger M lowers.
        all_rows_inducing: Whether the inducing inputs are the training rows (M = n) and are not
            moved.
        uses_residual: Whether `row_loss` needs the prior and residual variances of the marginals.
        row_parameters: Hyperparameters of `row_loss`, learned with those of the kernel.
        parameter_cost: `parameter_cost(hyper)` returns the penalty of `row_parameters`, divided by
            the number of rows [B]. Beta weighs it like the regulariser.
        collapsed_parameters: Hyperparameters of `collapsed`.
        options: Numbers that users may set; `row_loss`, `collapsed`, `row_order` and `row_noise`
            receive them as keyword arguments.
        mixture_loss: `mixture_loss(losses [B, K, N])` returns the loss per row [B, N] of a q of K
            Gaussians from the `row_loss` of each; None: q must be a Gaussian.
        row_order: `row_order(X [N, D])` returns the order [N] in which `collapsed` needs the rows;
            None: any order.
        row_noise: `row_noise(problem, beta, r)` returns the noise variances of the rows in the
            linear model of q (`gp.row_noise`). With it rows can be left out in closed form
            (`cv=loo`); None: they can't.
        notes: Why its fits have no minimiser, for readers of the fits.

    Example:
        ```python
        from dlmexp.core.gp.posterior import kl
        from dlmexp.core.objectives import OBJECTIVES, Objective


        def half_and_half(likelihood, estimator, q_f, y, draws):
            mu, v = q_f.mean, q_f.variance
            log_loss, acceptance = estimator.loss_and_acceptance(likelihood, mu, v, y, draws)
            return 0.5 * log_loss + 0.5 * likelihood.elbo_loss(mu, v, y), acceptance


        OBJECTIVES.add(
            "half", Objective("half", row_loss=half_and_half, regulariser=kl, takes_estimator=True)
        )
        ```
    """

    name: str
    row_loss: RowLoss | None = None
    regulariser: Regulariser | None = None
    collapsed: CollapsedObjective | None = None
    path: SolutionPath | None = None
    takes_estimator: bool = False
    has_beta: bool = True
    needs_gaussian: bool = False
    predicts_variance: bool = True
    gives_hyperparameters: bool = False
    bounds_evidence: bool = False
    all_rows_inducing: bool = False
    uses_residual: bool = False
    row_parameters: Mapping[str, Parameter] = field(default_factory=dict)
    collapsed_parameters: Mapping[str, Parameter] = field(default_factory=dict)
    parameter_cost: Callable[[Hyper], Float[Tensor, "B"]] | None = None
    options: Mapping[str, Option] = field(default_factory=dict)
    mixture_loss: Callable[[Float[Tensor, "B K N"]], Float[Tensor, "B N"]] | None = None
    row_order: RowOrder | None = None
    row_noise: RowNoise | None = None
    notes: Notes = Notes()

    def __post_init__(self) -> None:
        if self.row_loss is None:
            return
        try:
            inspect.signature(self.row_loss).bind("likelihood", "estimator", "q_f", "y", "draws")
        except TypeError:
            raise UserError(
                f"objective '{self.name}': row_loss must take (likelihood, estimator, q_f, y, "
                "draws); q_f.mean and q_f.variance are the mu and v of earlier versions"
            ) from None

    def with_options(self, values: Mapping[str, float]) -> "Objective":
        """Return the objective with these options; its other options have their defaults.

        Raises:
            UserError: An option is unknown or can not have this value.
        """
        for name, value in values.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UserError(
                    f"objective '{self.name}' has no option '{name}'; its options: {known}"
                )
            self.options[name].check(f"option '{name}' of objective '{self.name}'", value)
        if not self.options:
            return self
        all_values = {}
        for name, option in self.options.items():
            value = values.get(name, option.default)
            all_values[name] = int(value) if option.whole else float(value)
        functions = {}
        for name in ("row_loss", "collapsed", "row_order", "row_noise"):
            function = getattr(self, name)
            functions[name] = None if function is None else partial(function, **all_values)
        # The options are bound to the functions, so the new objective has no options left to set.
        return replace(self, options={}, **functions)

    @property
    def collapsed_only(self) -> bool:
        """Return whether q is never optimised explicitly."""
        return self.row_loss is None

    @property
    def selected_by(self) -> str | None:
        """Return the metric that always selects beta; None: the reported metric selects it."""
        return None if self.predicts_variance else "mse"

    def fits(self, likelihood: type[Likelihood]) -> bool:
        """Return whether the objective can be trained with this likelihood."""
        return likelihood.conjugate or not self.needs_gaussian

    def collapses(self, likelihood: type[Likelihood]) -> bool:
        """Return whether the best q has a closed form with this likelihood."""
        return self.collapsed is not None and likelihood.conjugate

    def leaves_one_out(self, likelihood: type[Likelihood]) -> bool:
        """Return whether a closed form also predicts every row from all other rows."""
        return self.row_noise is not None and self.collapses(likelihood)

    def checked_losses(
        self, result: object, shape: Sequence[int]
    ) -> tuple[Float[Tensor, "*B N"], Float[Tensor, "B"] | None]:
        """Return the result of `row_loss`: the loss per row [B, N], and the acceptance [B] or None.

        Raises:
            UserError: `row_loss` of a plugin returned something of another shape.
        """
        if not (isinstance(result, tuple) and len(result) == 2):
            kind = type(result).__name__
            raise UserError(
                f"objective '{self.name}': row_loss gave a {kind}, "
                "not a pair (loss, acceptance or None)"
            )
        loss, acceptance = result
        self.check_shape("the loss of row_loss", loss, shape)
        if acceptance is not None:
            self.check_shape("the acceptance of row_loss", acceptance, shape[:-1])
        return loss, acceptance

    def penalty(self, m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]) -> Float[Tensor, "B"]:
        """Return the penalty of q(w) = N(m, L L^T) that the regulariser computes.

        Raises:
            UserError: A plugin returned something of another shape.
        """
        # Objectives that optimise q explicitly have a regulariser.
        assert self.regulariser is not None
        return self.check_shape("regulariser", self.regulariser(m, L), m.shape[:-1])

    def check_shape(self, subject: str, value: Tensor, shape: Sequence[int]) -> Tensor:
        """Return `value` if it is a tensor of this shape.

        Raises:
            UserError: It is not a tensor of this shape. The message names the objective, and
                `subject` as what is wrong.
        """
        actual = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if actual != list(shape):
            raise UserError(
                f"objective '{self.name}': {subject} is {actual}, "
                f"where a tensor of {list(shape)} is needed"
            )
        return value

    def note(self, variant: str, beta: float | None, task: str) -> str | None:
        """Return why a fit has no minimiser, or may have none; None if no note applies.

        Args:
            variant: What is learned; "joint" if it is everything.
            beta: The beta of the fit; None if its cells have none.
            task: The task of the likelihood.
        """
        weight = beta if self.has_beta else None
        if variant == "joint":
            return self.notes.of_joint_fit(weight, task)
        return NO_PENALTY_NOTE if weight == 0 else None


OBJECTIVES: Registry[Objective] = Registry("objective", "dlmexp.core.objectives")
