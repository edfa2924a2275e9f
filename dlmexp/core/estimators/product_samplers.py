"""Product samplers: draws from q~(f) proportional to N(f; mu, v) p(y|f), for all rows at once.

This module has the interface of product samplers, the samplers without rejection (for likelihoods
with which q~ is a Gaussian or, for the probit, an extended skew-normal), and the rejection sampler
of the paper. `envelope` has faster rejection samplers.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dlmexp.common.errors import UserError
from dlmexp.common.registry import Registry
from dlmexp.core.estimators.draws import Draws
from dlmexp.core.likelihoods import Gaussian, Likelihood, Probit
from dlmexp.core.likelihoods.discrete import signs

OTHER_ESTIMATORS = "estimator=exact, quadrature, bmc or smooth_bmc"
"""The estimators that work with every likelihood, for messages to users."""


class ProductSample(NamedTuple):
    """Samples of q~, and how they were drawn.

    Attributes:
        e: The samples, standardised by q: f = mu + sqrt(v) e. The gradient needs e, which could not
            be recovered from f accurately where v is tiny.
        accepted: The number of accepted proposals of each row.
        proposed: The number of proposals of each row, as a float if it is the same for all rows.
        loss: The log loss of each row if the sampler has it at little cost, else None.
    """

    e: Float[Tensor, "*B L N"]
    accepted: Float[Tensor, "*B N"]
    proposed: Float[Tensor, "*B N"] | float
    loss: Float[Tensor, "*B N"] | None = None

    @property
    def acceptance(self) -> Float[Tensor, "*B"]:
        """The share of proposals that were accepted, over all rows."""
        proposed = self.proposed.mean(-1) if isinstance(self.proposed, Tensor) else self.proposed
        return self.accepted.mean(-1) / proposed


DrawFunction = Callable[[Likelihood, Tensor, Tensor, Tensor, int, Draws], ProductSample]
"""draw(likelihood, mu [..., N], v [..., N], y [..., N], samples, draws) returns `samples` samples
for every row, from the random numbers `draws`."""


@dataclass(frozen=True)
class ProductSampler:
    """A product sampler.

    Attributes:
        name: Its name in SAMPLERS.
        draw: The function that draws.
        likelihoods: The base class of the likelihoods for which it can draw.
        capturable: Whether its operations do not depend on the data, as a CUDA graph needs.
    """

    name: str
    draw: DrawFunction
    likelihoods: type[Likelihood] = Likelihood
    capturable: bool = True

    def sampler_for(self, likelihood: type[Likelihood]) -> "ProductSampler":
        """Return the sampler for this likelihood.

        `auto` stands for the sampler that the likelihood names; any other sampler is returned
        itself.

        Raises:
            UserError: The likelihood names none, or this sampler can't draw for it.
        """
        name = likelihood.product_sampler if self.name == "auto" else self.name
        if name is None:
            raise UserError(
                f"estimator=ups: the likelihood '{likelihood.name}' has no product sampler; "
                f"use {OTHER_ESTIMATORS}"
            )
        if not issubclass(likelihood, SAMPLERS[name].likelihoods):
            alternative = "sampler=auto" if likelihood.product_sampler else OTHER_ESTIMATORS
            raise UserError(
                f"sampler={name} can't draw for the likelihood '{likelihood.name}': "
                f"use {alternative}"
            )
        return SAMPLERS[name]


SAMPLERS: Registry[ProductSampler] = Registry("sampler", "dlmexp.core.estimators.envelope")


def product_sampler(
    name: str, likelihoods: type[Likelihood] = Likelihood, capturable: bool = True
) -> Callable[[DrawFunction], ProductSampler]:
    """Return a decorator that registers a function as the product sampler of that name.

    The decorator replaces the function by a `ProductSampler`, whose `draw` is the function.
    """

    def register(draw: DrawFunction) -> ProductSampler:
        return SAMPLERS.add(name, ProductSampler(name, draw, likelihoods, capturable))

    return register


@product_sampler("auto")
def auto(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw by the sampler that the likelihood names (`Likelihood.product_sampler`).

    It is the fastest sampler that is exact for the likelihood.
    """
    sampler = SAMPLERS["auto"].sampler_for(type(likelihood))
    return sampler.draw(likelihood, mu, v, y, samples, draws)


@product_sampler("gaussian", Gaussian)
def gaussian(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw f | y ~ N(mu + v (y - mu) / (v + noise), v noise / (v + noise))."""
    assert isinstance(likelihood, Gaussian)
    total = v + likelihood.noise
    # In units of q, e = (f - mu) / sqrt(v) has this mean and standard deviation:
    mean = v.sqrt() * (y - mu) / total
    std = (likelihood.noise / total).sqrt()
    e = mean.unsqueeze(-2) + std.unsqueeze(-2) * draws.normal(samples, mu.shape[-1])
    return _without_rejection(e, mu)


def _without_rejection(e: Float[Tensor, "*B L N"], mu: Float[Tensor, "*B N"]) -> ProductSample:
    """Return samples that are made without rejection.

    Only the ratio of accepted to all proposals is read (`ProductSample.acceptance`). It is 1, as
    with one accepted proposal for each row.
    """
    accepted = mu.new_ones(()).expand_as(mu)
    return ProductSample(e, accepted, proposed=1)


FAR_TAIL = 36.0
"""Where to leave the plain formula for truncated normals: Phi(-36) = 4e-284 is still a normal
float64 number, and so is u Phi(-36) for every u that is drawn."""


def truncated_normal(
    u: Float[Tensor, "*B L N"], alpha: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B L N"]:
    """Return the (1 - u)-quantile of N(0, 1) truncated to t > -alpha, for any alpha, u in (0, 1).

    It is the t above which N(0, 1) has the probability u Phi(alpha). Where alpha < -FAR_TAIL, this
    probability underflows. There, by Mills' ratio, with d = t^2 - alpha^2 and
    k = 1 + alpha^-2 - 2 alpha^-4,

        -2 log u = k d - d^2 / (2 alpha^4)

    to an error of d^3 / (3 alpha^6). Relative to -2 log u, the error is 1e-9 for typical u, and
    1e-6 for u = 1e-12. So t is first computed for alpha = -FAR_TAIL. With its d, the formula gives
    -2 log u. Then the formula, solved for d, gives d at alpha itself. Since both steps use the
    formula, their errors nearly cancel at -FAR_TAIL, where t is thus continuous in alpha.
    """
    # 1. The quantile for alpha, or for -FAR_TAIL where alpha is less
    near = alpha.clamp_min(-FAR_TAIL)
    # Phi(near). torch.special.ndtr would compute 1 + erf, which is 0 below -8.
    Phi_near = 0.5 * torch.erfc(near * -(0.5**0.5))
    t = -torch.special.ndtri(u * Phi_near.unsqueeze(-2))
    # 2. -2 log u, by the formula at -FAR_TAIL
    near_squared = near.square().unsqueeze(-2)
    d = t.square() - near_squared
    minus_2_log_u = d * (_tail_slope(FAR_TAIL**2) - d / (2 * FAR_TAIL**4))
    # 3. d at alpha, by the formula solved for d to second order
    far_squared = alpha.square().clamp_min(FAR_TAIL**2).unsqueeze(-2)
    correction = 1 + minus_2_log_u / (2 * far_squared.square())
    d = minus_2_log_u * correction / _tail_slope(far_squared)
    far_t = (far_squared + d).clamp_min(0).sqrt()
    return torch.where((alpha < -FAR_TAIL).unsqueeze(-2), far_t, t)


def _tail_slope(alpha_squared: float | Tensor) -> float | Tensor:
    """Return k = 1 + alpha^-2 - 2 alpha^-4."""
    return 1 + (1 - 2 / alpha_squared) / alpha_squared


@product_sampler("skew_normal", Probit)
def skew_normal(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw z = f + noise given its sign, then f given z.

    With the probit, p(y|f) is the probability that z has the sign of y, with noise ~ N(0, 1).
    """
    s = signs(y)
    n = mu.shape[-1]
    total = 1 + v
    # s z = sqrt(1 + v) (alpha + t), where t is N(0, 1) truncated to t > -alpha: so s z > 0. alpha
    # and t are float64 even if the marginals are float32, which can not represent the tails.
    alpha = (s * mu * total.rsqrt()).double()
    t = truncated_normal(draws.uniform(samples, n).double(), alpha).to(mu.dtype)
    # f given z has the mean mu + v / (1 + v) (z - mu) and the variance v / (1 + v). As
    # z - mu = s sqrt(1 + v) t, with w ~ N(0, 1),
    # e = (f - mu) / sqrt(v) = s sqrt(v / (1 + v)) t + w / sqrt(1 + v)
    e = (s * (v / total).sqrt()).unsqueeze(-2) * t
    e.addcmul_(total.rsqrt().unsqueeze(-2), draws.normal(samples, n))
    return _without_rejection(e, mu)


MAX_WIDENING = 10
"""The largest k of the proposal N(mu, k v)."""
ROUNDS = 256
"""The most rounds: in a round, each entry without an accepted proposal gets a new proposal."""
MAX_ROUNDS_AT_ONCE = 32
"""The most rounds that are drawn together; after them, the CPU must wait for a GPU's results."""


def widening(
    likelihood: Likelihood,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
) -> Float[Tensor, "*B N"]:
    """Return k of the proposal N(mu, k v).

    k is 1 if p(y|f) reaches half its maximum p_max within a standard deviation of mu. Otherwise it
    is the largest integer k <= 10 with max_[a,b] p <= p_max / sqrt(k), where [a, b] is the interval
    in which q exceeds the proposal (docs/SPEC.md, section 4).
    """
    peak = likelihood.peak(y)
    log_p_max = likelihood.log_p_max(y)
    deviation = v.sqrt()

    def log_largest_p(radius: Tensor) -> Tensor:
        """Return the log of max p / p_max within a radius of mu, reached nearest to the peak."""
        nearest_to_peak = torch.minimum(torch.maximum(peak, mu - radius), mu + radius)
        return likelihood.log_prob(nearest_to_peak, y) - log_p_max

    k = torch.ones_like(mu)
    for candidate in range(2, MAX_WIDENING + 1):
        log_k = math.log(candidate)
        # [a, b] = mu -+ sqrt(v log k / (1 - 1/k))
        radius = deviation * (log_k / (1 - 1 / candidate)) ** 0.5
        k = torch.where(log_largest_p(radius) <= -log_k / 2, float(candidate), k)
    return torch.where(log_largest_p(deviation) >= math.log(0.5), 1.0, k)


class Entries(NamedTuple):
    """Properties of E entries of the samples [..., L, N]: those of the row of each entry.

    Attributes:
        mu: Means of q.
        v: Variances of q.
        y: Targets.
        k: The widening of the proposal.
        log_p_max: The logarithm of the largest p(y|f).
    """

    mu: Float[Tensor, "E"]
    v: Float[Tensor, "E"]
    y: Float[Tensor, "E"]
    k: Float[Tensor, "E"]
    log_p_max: Float[Tensor, "E"]

    def take(self, positions: Int[Tensor, "e"]) -> "Entries":
        """Return the entries at these positions."""
        return Entries(*(values[positions] for values in self))


class RejectionSampling:
    """The state of rejection sampling, for all entries of the samples [*B, L, N].

    An entry is open until a proposal for it has been accepted. The random numbers of an entry, and
    so its sample, do not depend on the order in which entries are drawn.

    Args:
        likelihood: The likelihood.
        rows: mu, v, y of every row, and the widening k of its proposal: all [*B, N].
        samples: The number of samples L of a row.
        draws: The random numbers.
    """

    def __init__(
        self, likelihood: Likelihood, rows: tuple[Tensor, ...], samples: int, draws: Draws
    ):
        mu, _, y, _ = rows
        self.shape = (*mu.shape[:-1], samples, mu.shape[-1])
        self.samples = samples
        self.draws = draws
        self.rows = rows
        self.likelihood_over_samples = likelihood.over_samples()
        log_p_max = likelihood.log_p_max(y).expand(mu.shape)
        values_of_rows = (*rows, log_p_max)
        self.entries = Entries(
            *(values.unsqueeze(-2).expand(self.shape).flatten() for values in values_of_rows)
        )
        self.e = torch.zeros_like(self.entries.mu)
        self.tries = torch.zeros_like(self.entries.mu)

    def all_entries(self) -> Int[Tensor, " E"]:
        """Return the positions of all entries."""
        return torch.arange(self.e.numel(), device=self.e.device)

    def draw(
        self, still_open: Int[Tensor, " E"], first_round: int = 0, end_round: int = ROUNDS
    ) -> Int[Tensor, " e"]:
        """Draw for open entries together, and return those that are still open afterwards.

        Args:
            still_open: The positions of the entries.
            first_round: The number of the first round.
            end_round: The number of the first round that is not drawn any more.
        """
        rounds_done = first_round
        n = self.shape[-1]
        while rounds_done < end_round and still_open.numel():
            # As many rounds at once as were made before, so that the rounds are at most twice as
            # many as are needed.
            count = min(MAX_ROUNDS_AT_ONCE, max(1, rounds_done))
            rounds = range(rounds_done, min(end_round, rounds_done + count))
            uniform = _uniform_of_rounds(
                self.draws, still_open, self.samples, n, rounds, number_in_round=0
            )
            threshold = _uniform_of_rounds(
                self.draws, still_open, self.samples, n, rounds, number_in_round=1
            )
            likelihood = _likelihood_of_entries(
                self.likelihood_over_samples, still_open, self.shape
            )
            open_entries = self.entries.take(still_open)
            proposal, accepted = _propose(likelihood, open_entries, uniform, threshold)
            # The first accepted proposal of each entry. Where there is none, the last proposal,
            # which a later round overwrites.
            closes = accepted.any(0)
            chosen = torch.where(closes, accepted.to(torch.uint8).argmax(0), len(rounds) - 1)
            self.e[still_open] = proposal.gather(0, chosen[None]).squeeze(0)
            self.tries[still_open] += chosen + 1
            still_open = still_open[~closes]
            rounds_done = rounds.stop
        return still_open

    def draw_one_by_one(
        self, still_open: Int[Tensor, " E"], first_round: int = 0
    ) -> Int[Tensor, " e"]:
        """Draw for one open entry after the other, and return those that are still open afterwards.

        The arguments are those of `draw`.
        """
        open_entries = [self.draw(entry, first_round) for entry in still_open.split(1)]
        return torch.cat(open_entries) if open_entries else still_open

    def product_sample(
        self, likelihood: Likelihood, still_open: Int[Tensor, " E"]
    ) -> ProductSample:
        """Return the samples. Entries that are still open get samples of `auto`.

        The paper would go on with rejection sampling for these entries.
        """
        mu, v, y, _ = self.rows
        if still_open.numel():
            by_auto = auto.draw(likelihood, mu, v, y, self.samples, self.draws)
            self.e[still_open] = by_auto.e.flatten()[still_open]
        accepted = torch.full_like(mu, self.samples)
        tries = self.tries.view(self.shape).sum(-2)
        return ProductSample(self.e.view(self.shape), accepted, tries)


@product_sampler("rejection", capturable=False)
def rejection(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw as the paper does (its appendix "Efficient Implementation of Product Sampling").

    It draws until a proposal has been accepted for every entry, so its operations depend on the
    data. All open entries are drawn together. Entries that are open after `ROUNDS` rounds are drawn
    by `auto`.
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    rows = (mu, v, y, widening(likelihood, mu, v, y))
    sampling = RejectionSampling(likelihood, rows, samples, draws)
    still_open = sampling.draw(sampling.all_entries())
    return sampling.product_sample(likelihood, still_open)


VECTORISED_ROUNDS = 2
"""Number of rounds in which `hybrid` draws all entries together."""


@product_sampler("hybrid", capturable=False)
def hybrid(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw the samples of `rejection` in the way that the paper describes for its code.

    The first two rounds are drawn for all entries together; then the entries that are still open
    are drawn one by one.
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    rows = (mu, v, y, widening(likelihood, mu, v, y))
    sampling = RejectionSampling(likelihood, rows, samples, draws)
    still_open = sampling.draw(sampling.all_entries(), end_round=VECTORISED_ROUNDS)
    still_open = sampling.draw_one_by_one(still_open, first_round=VECTORISED_ROUNDS)
    return sampling.product_sample(likelihood, still_open)


@product_sampler("individual", capturable=False)
def individual(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw the samples of `rejection`, every entry on its own.

    The paper compares its hybrid procedure with this one. The proposal, too, is chosen for one row
    after the other.
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    positions = torch.arange(mu.numel(), device=mu.device)
    widenings = []
    for row in positions.split(1):
        row_likelihood = _likelihood_of_entries(likelihood, row, mu.shape)
        k = widening(row_likelihood, mu.flatten()[row], v.flatten()[row], y.flatten()[row])
        widenings.append(k)
    rows = (mu, v, y, torch.cat(widenings).view(mu.shape))
    sampling = RejectionSampling(likelihood, rows, samples, draws)
    still_open = sampling.draw_one_by_one(sampling.all_entries())
    return sampling.product_sample(likelihood, still_open)


def _uniform_of_rounds(
    draws: Draws,
    entries: Int[Tensor, "E"],
    samples: int,
    n: int,
    rounds: range,
    number_in_round: int,
) -> Float[Tensor, "R E"]:
    """Return a uniform number for each of these entries in each round.

    In a round, an entry has two uniform numbers: number 0 is for the proposal, 1 for its threshold.
    """
    by_round = []
    for round_number in rounds:
        stream = 2 * round_number + number_in_round
        by_round.append(draws.uniform_at(entries, samples, n, stream))
    return torch.stack(by_round)


def _propose(
    likelihood: Likelihood,
    entries: Entries,
    uniform: Float[Tensor, "R E"],
    threshold: Float[Tensor, "R E"],
) -> tuple[Float[Tensor, "R E"], Bool[Tensor, "R E"]]:
    """Return proposals e, standardised by q, and which of them are accepted.

    `uniform` makes the proposals. A proposal is accepted if its `threshold` is below its
    probability of acceptance.
    """
    k = entries.k
    e = k.sqrt() * torch.special.ndtri(uniform)
    f = entries.mu + entries.v.sqrt() * e
    log_p = likelihood.log_prob(f, entries.y)
    # q p / (p_max * proposal density) = p / p_max * sqrt(k) exp(-(1 - 1/k) e^2 / 2)
    log_accept = log_p - entries.log_p_max + k.log() / 2 - (1 - 1 / k) * e.square() / 2
    return e, threshold.log() < log_accept


def _likelihood_of_entries(
    likelihood: Likelihood, entries: Int[Tensor, "E"], shape: tuple[int, ...]
) -> Likelihood:
    """Return the likelihood with its parameters at these entries of an array of this shape."""
    parameters = {}
    for name, tensor in likelihood.own_tensors().items():
        parameters[name] = tensor.expand(shape).flatten()[entries]
    return replace(likelihood, **parameters)
