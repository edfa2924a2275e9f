"""`-log E_{N(f; mu, v)} p(y|f)` of a likelihood that has only a `log_prob`.

Gauss-Hermite quadrature is exact to rounding where p is smooth on the scale of sqrt(v). Where p has
a kink, or is much narrower than q, its error is large and depends on mu, v and the likelihood's
parameters: training would move them to where the error makes the loss small. So rows on which two
rules disagree are integrated again:

1. The range of f is cut into panels. They are two standard deviations wide near mu, grow further
   out, and become ever smaller towards the kinks that the likelihood declares.
2. Every panel has a Gauss-Legendre rule. The panels with the largest errors are halved, again and
   again. The error of a half is estimated by how much the halving changed the integral.
3. The integrals over panels are summed. Derivatives are moments under the product density, by the
   same nodes.
"""

import math
from functools import lru_cache, partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from dlmexp.core.gp.special import quadrature_nodes

HERMITE_NODES = 64
"""Number of nodes of the first Gauss-Hermite rule."""
CONTROL_NODES = 48
"""Number of nodes of the second Gauss-Hermite rule. Rows on which the two rules disagree are
integrated by panels."""
AGREEMENT = 1e-7
"""The rules agree if their log losses differ by at most this, or by 100 rounding errors if that is
more."""
PANEL_NODES = 8
"""Number of nodes of the Gauss-Legendre rule of a panel."""
HALVINGS = {"kinks": 6, "no kinks": 24}
"""Number of rounds of halving. With declared kinks few rounds are enough, as there are small panels
around the kinks from the start."""
HALVED_AT_ONCE = 3
"""Number of panels that are halved in a round."""
CORE = 8.0
"""Up to this distance from mu, in standard deviations, panels are two standard deviations wide."""
FAR = 1024.0
"""Distance from mu, in standard deviations, at which the panels end: this, or twice the distance of
the last kink if that is more."""
FAR_PANELS = 7
"""Number of panels between `CORE` and the last end, on either side of mu."""
KINK_STEPS = 9
"""Panels around a kink end 4^-1 to 4^-KINK_STEPS standard deviations away from it."""
ROWS_AT_ONCE = 8192
"""Number of rows that are integrated by panels at the same time, which bounds the memory."""


@runtime_checkable
class Density(Protocol):
    """The methods of a likelihood that the integration calls (`base.Likelihood` describes them)."""

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        """Return log p(y|f), elementwise."""
        ...

    def over_samples(self) -> "Density":
        """Return the likelihood for samples [..., L, N] of f."""
        ...

    def kinks(self, y: Tensor) -> tuple[Tensor, ...]:
        """Return the f at which p(y|f) bends or has a narrow peak."""
        ...

    def at_rows(self, rows: Tensor) -> "Density | None":
        """Return the likelihood of some rows, or None if it can't be cut into rows."""
        ...


class Panels(NamedTuple):
    """The panels of every row.

    Attributes:
        low: Their lower ends, in standard deviations from mu.
        high: Their upper ends.
        log_value: The logarithms of their integrals.
        log_error: The logarithms of estimates of the errors of their integrals.
    """

    low: Float[Tensor, "*B P N"]
    high: Float[Tensor, "*B P N"]
    log_value: Float[Tensor, "*B P N"]
    log_error: Float[Tensor, "*B P N"]


class Integrands(NamedTuple):
    """The functions N(f; mu, v) p(y|f) of f at rows [*B, N]."""

    likelihood: Density
    mu: Float[Tensor, "*B N"]
    v: Float[Tensor, "*B N"]
    y: Float[Tensor, "*B N"]

    def log_product(self, f: Float[Tensor, "*B L N"]) -> Float[Tensor, "*B L N"]:
        """Return log( N(f; mu, v) p(y|f) ); NaN, as from inf - inf, counts as probability 0."""
        v = self.v.unsqueeze(-2)
        # -1/2 (f - mu)^2 / v - 1/2 log(2 pi v)
        log_q = -0.5 * ((f - self.mu.unsqueeze(-2)).square() / v + (2 * math.pi * v).log())
        log_p = self.likelihood.over_samples().log_prob(f, self.y.unsqueeze(-2))
        total = log_q + log_p
        return torch.where(total.isnan(), -torch.inf, total)


def hermite_log_loss(
    likelihood: Density,
    mu: Float[Tensor, "*#B #N"],
    v: Float[Tensor, "*#B #N"],
    y: Float[Tensor, "*#B #N"],
    nodes: int,
) -> Float[Tensor, "*B N"]:
    """Return `-log sum_k w_k p(y|mu + sqrt(v) e_k)` by Gauss-Hermite quadrature in log space."""
    f, log_w = quadrature_nodes(mu, v, nodes)
    log_p = likelihood.over_samples().log_prob(f, y.unsqueeze(-2))
    return -torch.logsumexp(log_w + log_p, -2)


def checked_log_loss(
    likelihood: Density,
    mu: Float[Tensor, "*#B #N"],
    v: Float[Tensor, "*#B #N"],
    y: Float[Tensor, "*#B #N"],
) -> Float[Tensor, "*B N"]:
    """Return the log loss by Gauss-Hermite quadrature, and by panels where that is not enough."""
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    by_hermite = hermite_log_loss(likelihood, mu, v, y, HERMITE_NODES)
    with torch.no_grad():
        control = hermite_log_loss(likelihood, mu, v, y, CONTROL_NODES)
        tolerance = max(AGREEMENT, 100 * torch.finfo(mu.dtype).eps)
        # Not `>`: NaN disagrees with everything.
        disagree = ~((by_hermite - control).abs() <= tolerance)
    if not disagree.any():
        return by_hermite
    return _replace_by_panels(Integrands(likelihood, mu, v, y), by_hermite, disagree)


def _replace_by_panels(
    rows: Integrands, by_hermite: Float[Tensor, "*B N"], disagree: Bool[Tensor, "*B N"]
) -> Float[Tensor, "*B N"]:
    """Return the log losses: by panels where the two rules disagree, `by_hermite` elsewhere."""
    likelihood = rows.likelihood.at_rows(disagree)
    # A likelihood that can not be cut into rows is integrated by panels on all rows.
    if likelihood is None:
        return torch.where(disagree, panel_log_loss(*rows), by_hermite)
    selected = Integrands(likelihood, rows.mu[disagree], rows.v[disagree], rows.y[disagree])
    pieces = _split_into_pieces(selected)
    if len(pieces) == 1:
        return by_hermite.masked_scatter(disagree, panel_log_loss(*selected))
    # To save memory, the backward pass computes each piece a second time.
    with set_checkpoint_early_stop(False):
        losses = [_checkpointed_log_loss(piece) for piece in pieces]
    return by_hermite.masked_scatter(disagree, torch.cat(losses))


def _checkpointed_log_loss(rows: Integrands) -> Float[Tensor, "N"]:
    """Return `panel_log_loss`, of which nothing is kept for the backward pass."""
    loss = partial(panel_log_loss, *rows)
    if not torch.is_grad_enabled():
        return loss()
    return checkpoint(loss, use_reentrant=False, preserve_rng_state=False)  # pyright: ignore[reportReturnType]


def _split_into_pieces(rows: Integrands) -> list[Integrands]:
    """Return the rows [N] as pieces of at most `ROWS_AT_ONCE` rows."""
    count = len(rows.mu)
    pieces = []
    for start in range(0, count, ROWS_AT_ONCE):
        is_inside = torch.zeros(count, dtype=torch.bool, device=rows.mu.device)
        is_inside[start : start + ROWS_AT_ONCE] = True
        likelihood = rows.likelihood.at_rows(is_inside)
        # `rows` were cut from a batch in the same way.
        assert likelihood is not None
        pieces.append(
            Integrands(likelihood, rows.mu[is_inside], rows.v[is_inside], rows.y[is_inside])
        )
    return pieces


def panel_log_loss(
    likelihood: Density,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
    effort: int = 1,
) -> Float[Tensor, "*B N"]:
    """Return the log loss of every row by panels.

    Args:
        likelihood: The likelihood.
        mu: Means of q(f_i).
        v: Variances of q(f_i).
        y: Targets.
        effort: Multiplies the number of rounds in which panels are halved.
    """
    rows = Integrands(likelihood, mu, v.clamp_min(torch.finfo(v.dtype).tiny), y)
    with torch.no_grad():
        panels = _halve_worst_panels(rows, _first_panels(rows), effort)
        loss = -torch.logsumexp(panels.log_value, -2)
    return _loss_with_gradients(rows, panels, loss) if torch.is_grad_enabled() else loss


def _loss_with_gradients(
    rows: Integrands, panels: Panels, loss: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B N"]:
    """Return the loss with its gradients.

    With E under the product density, they are -E[d log q/dmu], -E[d log q/dv] and, in the
    likelihood's own parameters, -E[d log p(y|f)].
    """
    with torch.no_grad():
        z, log_w = _nodes(panels.low, panels.high)
        f = rows.mu.unsqueeze(-2) + rows.v.sqrt().unsqueeze(-2) * z.flatten(-3, -2)
        # The product density at the nodes, which sums to 1
        weight = torch.softmax(log_w.flatten(-3, -2) + rows.log_product(f), -2)
        s = f - rows.mu.unsqueeze(-2)
        # d log q/dmu = s / v
        d_mu = -(weight * s).sum(-2) / rows.v
        # d log q/dv = (s^2 / v - 1) / (2 v)
        d_v = -((weight * s.square()).sum(-2) / rows.v - 1) / (2 * rows.v)
    # `loss` has no gradients. Two zeros that have the gradients are added to it: in mu and v, ...
    zero_of_q = d_mu * (rows.mu - rows.mu.detach()) + d_v * (rows.v - rows.v.detach())
    # ... and in the parameters of p. Where p is 0, the weight is 0 and log p is -inf. The clamp
    # avoids their product, which is NaN.
    log_p = rows.likelihood.over_samples().log_prob(f, rows.y.unsqueeze(-2))
    expected_loss = -(weight * log_p.clamp_min(torch.finfo(f.dtype).min)).sum(-2)
    return loss + zero_of_q + (expected_loss - expected_loss.detach())


def _first_panels(rows: Integrands) -> Panels:
    """Return the panels before any is halved; their values stand in for their unknown errors."""
    mu = rows.mu
    sd = rows.v.sqrt()
    # in standard deviations from mu
    kinks = [(kink - mu) / sd for kink in rows.likelihood.kinks(rows.y)]
    far = torch.full_like(mu, FAR)
    for kink in kinks:
        far = torch.maximum(far, 2 * kink.abs())
    # 1. Ends of panels around mu
    inner = torch.arange(-CORE, CORE + 1, 2, dtype=mu.dtype, device=mu.device)
    inner_of_rows = inner.unsqueeze(-1).expand(*mu.shape[:-1], -1, mu.shape[-1])
    # 2. Ends further out, CORE (far / CORE)^fraction: panels grow in proportion to their distance
    fraction = torch.arange(1, FAR_PANELS + 1, dtype=mu.dtype, device=mu.device) / FAR_PANELS
    outer = CORE * (far / CORE).unsqueeze(-2) ** fraction.unsqueeze(-1)
    ends = [-outer, inner_of_rows, outer]
    # 3. Ends around the kinks
    steps = 4.0 ** -torch.arange(1, KINK_STEPS + 1, dtype=mu.dtype, device=mu.device)
    offsets = torch.cat((-steps, torch.zeros_like(steps[:1]), steps))
    ends += [kink.unsqueeze(-2) + offsets.unsqueeze(-1) for kink in kinks]
    sorted_ends = torch.cat(ends, -2).sort(-2).values
    low = sorted_ends[..., :-1, :]
    high = sorted_ends[..., 1:, :]
    log_value = _log_values(rows, low, high)
    return Panels(low, high, log_value, log_error=log_value)


def _halve_worst_panels(rows: Integrands, panels: Panels, effort: int) -> Panels:
    """Return the panels after several rounds; each round halves those with the largest errors."""
    has_kinks = bool(rows.likelihood.kinks(rows.y))
    rounds = HALVINGS["kinks" if has_kinks else "no kinks"]
    for _ in range(effort * rounds):
        worst = panels.log_error.topk(HALVED_AT_ONCE, dim=-2).indices
        low = panels.low.gather(-2, worst)
        high = panels.high.gather(-2, worst)
        middle = (low + high) / 2
        left = _log_values(rows, low, middle)
        right = _log_values(rows, middle, high)
        # Both halves get the change of the integral by the halving as their error.
        whole = panels.log_value.gather(-2, worst)
        log_error = _log_difference(torch.logaddexp(left, right), whole)
        # Left halves take the places of the panels, and right halves are added at the end.
        panels = Panels(
            low=torch.cat((panels.low, middle), -2),
            high=torch.cat((panels.high.scatter(-2, worst, middle), high), -2),
            log_value=torch.cat((panels.log_value.scatter(-2, worst, left), right), -2),
            log_error=torch.cat((panels.log_error.scatter(-2, worst, log_error), log_error), -2),
        )
    return panels


@lru_cache(maxsize=8)
def _legendre(
    dtype: torch.dtype, device: torch.device
) -> tuple[Float[Tensor, "G 1"], Float[Tensor, "G 1"]]:
    """Return the nodes of a panel on [-1, 1] and their log weights, for panels [..., P, 1, N]."""
    x, w = np.polynomial.legendre.leggauss(PANEL_NODES)
    nodes = torch.tensor(x, dtype=dtype, device=device)
    log_weights = torch.tensor(np.log(w), dtype=dtype, device=device)
    return nodes[:, None], log_weights[:, None]


def _nodes(
    low: Float[Tensor, "*B P N"], high: Float[Tensor, "*B P N"]
) -> tuple[Float[Tensor, "*B P G N"], Float[Tensor, "*B P G N"]]:
    """Return the nodes of panels, in standard deviations from mu, and their log weights."""
    x, log_w = _legendre(low.dtype, low.device)
    middle = ((low + high) / 2).unsqueeze(-2)
    half_width = ((high - low) / 2).unsqueeze(-2)
    return middle + half_width * x, log_w + half_width.log()


def _log_values(
    rows: Integrands, low: Float[Tensor, "*B P N"], high: Float[Tensor, "*B P N"]
) -> Float[Tensor, "*B P N"]:
    """Return the log of the integral over each panel, by its Gauss-Legendre rule."""
    z, log_w = _nodes(low, high)
    f = rows.mu.unsqueeze(-2) + rows.v.sqrt().unsqueeze(-2) * z.flatten(-3, -2)
    log_product = rows.log_product(f).unflatten(-2, z.shape[-3:-1])
    # df = sqrt(v) dz
    log_df_over_dz = 0.5 * rows.v.log()[..., None, :]
    return torch.logsumexp(log_product + log_w, -2) + log_df_over_dz


def _log_difference(a: Tensor, b: Tensor) -> Tensor:
    """Return log |e^a - e^b|; minus infinity where they are equal."""
    large = torch.maximum(a, b)
    small = torch.minimum(a, b)
    difference = large + torch.log(-torch.expm1(small - large))
    return torch.where(difference.isnan(), -torch.inf, difference)
