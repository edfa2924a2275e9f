"""Everything is learned, and q is a mixture of Gaussians (docs/SPEC.md, section 2).

    q(w) = 1/K sum_k N(w; m_k, L_k L_k^T)

The components share kernel, likelihood and inducing inputs. The loss of a row is the loss of the
mixture of their predictions. The penalty is the mean over components of KL(q_k || p). By convexity
it is at least KL(q || p), and it is at most log K larger.

Training starts with a single Gaussian. Half-way the Gaussian is split: the mean of each component
is drawn from it. If components were apart from the start, each might settle on a part of the rows
for good. Components that start from one solution stay near it unless the data pull them apart.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dlmexp.core.estimators import Draws
from dlmexp.core.gp.posterior import Marginals, component_marginals, projection
from dlmexp.core.gp.precision import hyper_in_type_of, row_mean
from dlmexp.core.training.joint import Joint
from dlmexp.core.training.parameters import Q_NAMES, Tensors
from dlmexp.core.training.program import ObjectiveValue, Posterior
from dlmexp.core.training.settings import Settings
from dlmexp.core.training.state import State


@dataclass
class Mixture(Joint):
    """Every cell has its own kernel matrices and K components of q.

    m is [B, K, M] and L [B, K, M, M] from the start. Before the split only the first component is
    trained; the other components are not used.

    Attributes:
        is_split: Whether the single Gaussian has been split (`Settings.split_at`).
    """

    is_split: bool = field(default=False, kw_only=True)

    def initial(self) -> Tensors:
        """Return the initial hyperparameters, and all components at the prior."""
        values = super().initial()
        values["m"] = values["m"].unsqueeze(1).repeat(1, self.model.components, 1)
        values["L"] = values["L"].unsqueeze(1).repeat(1, self.model.components, 1, 1)
        return values

    def resume(self, iteration: int, settings: Settings) -> None:
        """Set `is_split`; a checkpoint of iteration `split_at` was written before the split."""
        self.is_split = settings.split_at is None or iteration > settings.split_at

    def split_gaussian(self, state: State) -> None:
        """Split the Gaussian: draw the mean of each component from it, and copy its factor L.

        Adam's moments of m and L are set to zero.
        """
        m = state.values["m"]
        L = state.values["L"].tril()
        draws = self._normal_draws().to(m)
        # m_k = m + L e_k, with standard normal draws e_k
        m.copy_(m[:, :1] + draws @ L[:, 0].mT)
        state.values["L"].copy_(L[:, :1].expand_as(L))
        for name in Q_NAMES:
            state.first[name].zero_()
            state.second[name].zero_()
        self.is_split = True

    def _normal_draws(self) -> Float[Tensor, "B K M"]:
        """Return standard normal numbers that depend on the seed of each cell's split alone."""
        shape = (self.model.components, self.M)
        by_split = []
        for seed in self.data.seed_of:
            generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, 1])))
            by_split.append(torch.from_numpy(generator.standard_normal(shape)))
        return torch.stack(by_split)[self.data.split_index.cpu()]

    def objective(
        self, values: Tensors, jitter: Float[Tensor, "B"], iteration: Int[Tensor, ""]
    ) -> ObjectiveValue:
        """Return the objective on the rows of this step, differentiable in `values`."""
        if not self.is_split:
            single_gaussian = {**values, "m": values["m"][:, 0], "L": values["L"][:, 0]}
            return super().objective(single_gaussian, jitter, iteration)
        # 1. The marginals of every component at the rows, [B, K, N].
        hyper = self.hyperparameters(values)
        m, L = self.q(values)
        X, y = self._all_rows or self._minibatch_by_cell()
        p = projection(self.model.kernel, hyper, X, jitter)
        mu, v = component_marginals(p, hyper["mean"], m, L)
        # 2. The loss of every component, then the loss of the mixture.
        likelihood = self.model.likelihood.from_hyper(hyper_in_type_of(mu, hyper)).over_samples()
        draws = Draws(self.data.seeds, self.data.split_index, iteration, self.data.X.dtype)
        objective = self.loss.objective
        # Only objectives with both losses are trained with a mixture as q.
        assert objective.row_loss is not None
        assert objective.mixture_loss is not None
        component_losses, _ = objective.row_loss(
            likelihood, self.loss.estimator, Marginals(mu, v), y.unsqueeze(-2), draws
        )
        row_loss = objective.mixture_loss(component_losses)
        # 3. The mean loss of a row, and the penalty.
        total = row_mean(row_loss) + self.beta * self._mean_penalty(m, L) / self.n
        return ObjectiveValue(total, p.ok)

    def _mean_penalty(
        self, m: Float[Tensor, "B K M"], L: Float[Tensor, "B K M M"]
    ) -> Float[Tensor, "B"]:
        """Return the mean over components of KL(q_k || p)."""
        penalties = self.loss.objective.penalty(m.flatten(0, 1), L.flatten(0, 1))
        return penalties.view(m.shape[:2]).mean(1)

    def posterior(self, values: Tensors, jitter: Float[Tensor, "B"]) -> Posterior:
        """Return hyperparameters and the components of q.

        Before the split all components are copies of the first.
        """
        hyper = self.hyperparameters(values)
        m, L = self.q(values)
        if not self.is_split:
            m = m[:, :1].expand_as(m)
            L = L[:, :1].expand_as(L)
        return Posterior(hyper, m, L, jitter)
