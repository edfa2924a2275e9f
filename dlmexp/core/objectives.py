"""Objectives by name, and the facts that they state about themselves.

Those of the paper are direct loss minimisation, whose loss is that of the prediction itself
(sections 2 to 4); its baselines, the ELBO with its KL weighted by beta, and FITC; power EP, which
lies between these two; and the exact Gaussian process, which all of them approximate. A new one is
registered here (`Objective` shows how), and has a YAML file in `conf/method` for each of its
variants."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.estimators import Draws, Estimator
from dlmexp.core.gp.collapsed import (
    CollapsedObjective,
    Moments,
    collapsed_elbo,
    collapsed_square,
    exact_evidence,
    power_ep,
    square_path,
)
from dlmexp.core.gp.posterior import kl
from dlmexp.core.likelihoods import Likelihood

RowLoss = Callable[
    [Likelihood, Estimator, Tensor, Tensor, Tensor, Draws],
    tuple[Float[Tensor, "B N"], Float[Tensor, "B"] | None],
]
"""row_loss(likelihood, estimator, mu, v, y, draws): the loss per row, of marginals and targets [B, N], and per cell the
share of accepted proposals where the loss draws by rejection."""

Path = Callable[[Moments, Float[Tensor, "K"]], tuple[Float[Tensor, "S K M"], Float[Tensor, "S K"]]]
"""The mean of q and the objective that solve S splits at K betas, from the moments of all rows."""
NO_PENALTY = "beta = 0: without a penalty there may be no minimiser, or more than one; this is where training stopped"


@dataclass(frozen=True)
class Objective:
    """Training minimises `sum_i row_loss_i + beta * regulariser(m, L)`, divided by the number of
    rows (docs/SPEC.md, section 2), or, where q has a closed form, the minimum of that over q. The
    other fields are facts about it that the rest of the program asks for; most objectives need the
    first three and `takes_estimator`.

    Example:
        ```python
        from dlmexp.core.gp.posterior import kl
        from dlmexp.core.objectives import OBJECTIVES, Objective


        def half_and_half(likelihood, estimator, mu, v, y, draws):
            log_loss, acceptance = estimator.loss_and_acceptance(likelihood, mu, v, y, draws)
            return 0.5 * log_loss + 0.5 * likelihood.elbo_loss(mu, v, y), acceptance


        OBJECTIVES.add("half", Objective("half", row_loss=half_and_half, regulariser=kl, takes_estimator=True))
        ```
    """

    name: str
    row_loss: RowLoss | None = None  # None: there is only the closed form
    regulariser: Callable[[Tensor, Tensor], Float[Tensor, "B"]] | None = None
    collapsed: CollapsedObjective | None = None  # its minimum over q, for Gaussian noise
    path: Path | None = None  # with fixed hyperparameters, the solutions at all betas at once
    has_beta: bool = True  # without it, beta is 1
    takes_estimator: bool = (
        False  # its rows are -log E_q p(y|f), by whichever estimator is asked for
    )
    needs_gaussian: bool = False  # Gaussian noise only
    predicts_variance: bool = True  # without it there is no NLL
    selected_by: str | None = (
        None  # the metric that always selects its beta; None: the metric that is reported
    )
    gives_hyperparameters: bool = (
        False  # fixed variants can take their hyperparameters from its joint beta = 1 fit
    )
    all_rows_inducing: bool = False  # M = n: the inducing inputs are the training rows, and stay so
    joint_note: str | None = None  # what a reader of its joint fits must know
    joint_binary_note: str | None = None  # the same of its joint fits to binary data
    joint_interpolation_note: str | None = (
        None  # the same of its joint regression fits with beta < 1
    )

    @property
    def collapsed_only(self) -> bool:
        """Whether q is never optimised explicitly."""
        return self.row_loss is None

    def fits(self, likelihood: type[Likelihood]) -> bool:
        """Whether it can be trained with this likelihood."""
        return likelihood.conjugate or not self.needs_gaussian

    def collapses(self, likelihood: type[Likelihood]) -> bool:
        """Whether it has a closed form over q with this likelihood."""
        return self.collapsed is not None and likelihood.conjugate

    def losses(
        self,
        likelihood: Likelihood,
        estimator: Estimator,
        mu: Tensor,
        v: Tensor,
        y: Tensor,
        draws: Draws,
    ) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B"] | None]:
        """`row_loss`, whose result has the right shapes; a plugin's mistake is a sentence for its
        author."""
        assert self.row_loss is not None
        pair = self.row_loss(likelihood, estimator, mu, v, y, draws)
        if not (isinstance(pair, tuple) and len(pair) == 2):
            kind = type(pair).__name__
            raise UserError(
                f"objective '{self.name}': row_loss gave a {kind}, not a pair (loss, acceptance or None)"
            )
        loss, acceptance = pair
        self.check_shape("the loss of row_loss", loss, mu.shape)
        if acceptance is not None:
            self.check_shape("the acceptance of row_loss", acceptance, mu.shape[:-1])
        return loss, acceptance

    def penalty(self, m: Float[Tensor, "B M"], L: Float[Tensor, "B M M"]) -> Float[Tensor, "B"]:
        """`regulariser`, whose result has the right shape."""
        assert self.regulariser is not None
        return self.check_shape("regulariser", self.regulariser(m, L), m.shape[:-1])

    def check_shape(self, what: str, value: Tensor, shape: Sequence[int]) -> Tensor:
        """`value`; where it is not a tensor of this shape, a sentence for the author of the
        objective."""
        given = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if given != list(shape):
            raise UserError(
                f"objective '{self.name}': {what} is {given}, where a tensor of {list(shape)} is needed"
            )
        return value

    def note(self, variant: str, beta: float | None, task: str) -> str | None:
        """What a reader of a fit must know: why its objective has no minimiser, or may have
        none."""
        if variant == "joint" and self.joint_note is not None:
            return self.joint_note
        if self.has_beta and beta == 0:
            return NO_PENALTY
        if variant == "joint" and task == "regression" and beta is not None and beta < 1:
            return self.joint_interpolation_note
        return self.joint_binary_note if variant == "joint" and task == "binary" else None


OBJECTIVES: Registry[Objective] = Registry("objective", "dlmexp.core.objectives")


def elbo_row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "B N"], None]:
    """E_q[-log p(y|f)] (section 2 of the paper), analytic or by quadrature: no estimator, no
    draws."""
    return likelihood.elbo_loss(mu, v, y), None


OBJECTIVES.add(
    "elbo",
    Objective("elbo", elbo_row_loss, kl, collapsed=collapsed_elbo, gives_hyperparameters=True),
)

# Its alpha stands where others have beta: 1 is FITC, 0 the ELBO.
OBJECTIVES.add("fitc", Objective("fitc", collapsed=power_ep, has_beta=False, needs_gaussian=True))
OBJECTIVES.add("power_ep", Objective("power_ep", collapsed=power_ep, needs_gaussian=True))

OBJECTIVES.add(
    "exact",
    Objective(
        "exact",
        collapsed=exact_evidence,
        has_beta=False,
        needs_gaussian=True,
        all_rows_inducing=True,
    ),
)


def log_row_loss(
    likelihood: Likelihood, estimator: Estimator, mu: Tensor, v: Tensor, y: Tensor, draws: Draws
) -> tuple[Float[Tensor, "B N"], Float[Tensor, "B"] | None]:
    """-log E_q[p(y|f)] by the estimator, with the gradient it stands for."""
    return estimator.loss_and_acceptance(likelihood, mu, v, y, draws)


OBJECTIVES.add(
    "log_dlm",
    Objective(
        "log_dlm",
        log_row_loss,
        kl,
        takes_estimator=True,
        gives_hyperparameters=True,
        joint_binary_note="the penalty does not see the outputscale: where all training rows are classified right, "
        "a larger one always lowers the objective and no minimiser exists; this is where training stopped",
        joint_interpolation_note="no minimiser exists: with beta < 1 the objective falls without bound as inducing "
        "inputs move onto training rows and the variances there and the noise vanish; this is where training stopped",
    ),
)

# 1/2 (mu - y)^2 per row and beta/2 |m|^2: it depends on the mean of q alone.
OBJECTIVES.add(
    "sq_dlm",
    Objective(
        "sq_dlm",
        collapsed=collapsed_square,
        path=square_path,
        needs_gaussian=True,
        predicts_variance=False,
        selected_by="mse",
        joint_note="no minimiser exists: the penalty vanishes as the outputscale grows; this is where training stopped",
    ),
)
