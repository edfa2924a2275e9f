"""Product samplers: draws from q~(f) proportional to N(f; mu, v) p(y|f), all rows at once.

Here is what they are, those without rejection (q~ is a Gaussian, or with the probit an extended
skew-normal), and the paper's own. `envelope` has fast ones that reject.
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
"""Estimators that need nothing of a likelihood but log_prob, as users type them."""


class ProductSample(NamedTuple):
    """Samples in q's own units, and how they were drawn.

    f = mu + sqrt(v) e would lose the digits of e where v is tiny, and the gradient needs e.
    """

    e: Float[Tensor, "*B L N"]
    accepted: Float[Tensor, "*B N"]
    """accepted proposals of each row"""
    proposed: Float[Tensor, "*B N"] | float
    """proposals of each row; a number where all rows propose alike"""
    loss: Float[Tensor, "*B N"] | None = None
    """the row's log loss where the sampler has it at little cost"""

    @property
    def acceptance(self) -> Float[Tensor, "*B"]:
        """Accepted over proposed, all rows together."""
        proposed = self.proposed.mean(-1) if isinstance(self.proposed, Tensor) else self.proposed
        return self.accepted.mean(-1) / proposed


Draw = Callable[[Likelihood, Tensor, Tensor, Tensor, int, Draws], ProductSample]
"""draw(likelihood, mu [..., N], v [..., N], y [..., N], samples, random numbers)."""


@dataclass(frozen=True)
class ProductSampler:
    """A product sampler and its facts.

    Attributes:
        name: Its name in SAMPLERS.
        draw: The function that draws.
        likelihoods: What it can draw for.
        capturable: Whether its operations do not depend on the data, as a CUDA graph needs.
    """

    name: str
    draw: Draw
    likelihoods: type[Likelihood] = Likelihood
    capturable: bool = True

    def chosen_for(self, likelihood: type[Likelihood]) -> "ProductSampler":
        """Return the sampler for this likelihood: this one or, of `auto`, the likelihood's own.

        Raises:
            UserError: there is none, or this one can't draw for the likelihood.
        """
        name = likelihood.product_sampler if self.name == "auto" else self.name
        if name is None:
            raise UserError(
                f"estimator=ups: the likelihood '{likelihood.name}' has no product sampler; "
                f"use {OTHER_ESTIMATORS}"
            )
        if not issubclass(likelihood, SAMPLERS[name].likelihoods):
            other = "sampler=auto" if likelihood.product_sampler else OTHER_ESTIMATORS
            raise UserError(
                f"sampler={name} can't draw for the likelihood '{likelihood.name}': use {other}"
            )
        return SAMPLERS[name]


SAMPLERS: Registry[ProductSampler] = Registry("sampler", "dlmexp.core.estimators.envelope")


def product_sampler(
    name: str, likelihoods: type[Likelihood] = Likelihood, capturable: bool = True
) -> Callable[[Draw], ProductSampler]:
    """Register a function as the product sampler of that name."""

    def register(draw: Draw) -> ProductSampler:
        return SAMPLERS.add(name, ProductSampler(name, draw, likelihoods, capturable))

    return register


@product_sampler("auto")
def auto(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw by the fastest exact sampler, which a likelihood names as its `product_sampler`."""
    sampler = SAMPLERS["auto"].chosen_for(type(likelihood))
    return sampler.draw(likelihood, mu, v, y, samples, draws)


@product_sampler("gaussian", Gaussian)
def gaussian(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw f | y ~ N(mu + v (y - mu) / (v + noise), v noise / (v + noise))."""
    assert isinstance(likelihood, Gaussian)
    total = v + likelihood.noise
    centre = v.sqrt() * (y - mu) / total
    spread = (likelihood.noise / total).sqrt()
    e = centre.unsqueeze(-2) + spread.unsqueeze(-2) * draws.normal(samples, mu.shape[-1])
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)


FAR_TAIL = 36.0
"""Phi(-36) = 4e-284 is still a normal float64 number, and so is u Phi(-36) for every u drawn."""


def truncated_normal(
    u: Float[Tensor, "*B L N"], alpha: Float[Tensor, "*B N"]
) -> Float[Tensor, "*B L N"]:
    """Return the (1 - u)-quantile of N(0, 1) truncated to t > -alpha, for any alpha, u in (0, 1).

    It inverts the upper tail, u Phi(alpha). Beyond alpha = -FAR_TAIL that underflows. With
    d = t^2 - alpha^2 and k = 1 + alpha^-2 - 2 alpha^-4, -2 log of the share of the tail beyond t is
    there

        k d - d^2 / (2 alpha^4)

    (Mills' ratio, to an error of d^3 / (3 alpha^6): 1e-9 of it for typical u, 1e-6 for u = 1e-12).
    So t at -FAR_TAIL gives t at any alpha beyond.
    """
    near = alpha.clamp_min(-FAR_TAIL)
    # Phi(near). torch.special.ndtr is 1 + erf, which is nothing below -8.
    upper = 0.5 * torch.erfc(near * -(0.5**0.5))
    t = -torch.special.ndtri(u * upper.unsqueeze(-2))
    near_squared = near.square().unsqueeze(-2)
    far_squared = alpha.square().clamp_min(FAR_TAIL**2).unsqueeze(-2)
    # -2 log of the share at -FAR_TAIL
    d = t.square() - near_squared
    exponent = d * (_tail_slope(FAR_TAIL**2) - d / (2 * FAR_TAIL**4))
    # d with the same share at alpha
    d = exponent * (1 + exponent / (2 * far_squared.square())) / _tail_slope(far_squared)
    beyond = (far_squared + d).clamp_min(0).sqrt()
    return torch.where((alpha < -FAR_TAIL).unsqueeze(-2), beyond, t)


def _tail_slope(square: float | Tensor) -> float | Tensor:
    """Return k = 1 + alpha^-2 - 2 alpha^-4 of alpha^2."""
    return 1 + (1 - 2 / square) / square


@product_sampler("skew_normal", Probit)
def skew_normal(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw z = f + noise given its sign, then f given z, with gain v / (1 + v).

    For p(y|f) = P(f + noise has y's sign), with noise ~ N(0, 1).
    """
    s = signs(y)
    n = mu.shape[-1]
    total = 1 + v
    # In float64 whatever the marginals are: float32 has no room for the tails.
    alpha = (s * mu * total.rsqrt()).double()
    t = truncated_normal(draws.uniform(samples, n).double(), alpha).to(mu.dtype)
    e = (s * (v / total).sqrt()).unsqueeze(-2) * t
    e.addcmul_(total.rsqrt().unsqueeze(-2), draws.normal(samples, n))
    return ProductSample(e, mu.new_ones(()).expand_as(mu), 1)


MAX_WIDENING = 10
ROUNDS = 256
MAX_ROUNDS_AT_ONCE = 32
"""Rounds drawn together; after each such block a GPU is waited for."""


def widening(
    likelihood: Likelihood,
    mu: Float[Tensor, "*B N"],
    v: Float[Tensor, "*B N"],
    y: Float[Tensor, "*B N"],
) -> Float[Tensor, "*B N"]:
    """Return k of the proposal N(mu, k v).

    k is 1 if p reaches half its maximum within a standard deviation of mu. Otherwise it is the
    largest integer k <= 10 with max_[a,b] p <= p_max / sqrt(k), where [a, b] is the interval in
    which q exceeds the proposal (docs/SPEC.md, section 4).
    """
    peak = likelihood.peak(y)
    log_p_max = likelihood.log_p_max(y)
    deviation = v.sqrt()

    def log_best(radius: Tensor) -> Tensor:
        """Return log of max p / p_max within a radius of mu."""
        nearest = torch.minimum(torch.maximum(peak, mu - radius), mu + radius)
        return likelihood.log_prob(nearest, y) - log_p_max

    k = torch.ones_like(mu)
    for candidate in range(2, MAX_WIDENING + 1):
        log_k = math.log(candidate)
        # [a, b] = mu -+ sqrt(v log k / (1 - 1/k))
        half = deviation * (log_k / (1 - 1 / candidate)) ** 0.5
        k = torch.where(log_best(half) <= -log_k / 2, float(candidate), k)
    return torch.where(log_best(deviation) >= math.log(0.5), 1.0, k)


class Entries(NamedTuple):
    """Entries of samples [..., L, N], flattened, with what their rows say: all [E]."""

    mu: Float[Tensor, "E"]
    v: Float[Tensor, "E"]
    y: Float[Tensor, "E"]
    k: Float[Tensor, "E"]
    """widening of the proposal"""
    log_p_max: Float[Tensor, "E"]

    def at(self, index: Int[Tensor, "e"]) -> "Entries":
        """Return chosen entries."""
        return Entries(*(part[index] for part in self))


class RejectionSampling:
    """Samples by rejection, of which some entries are still open.

    All ways to go through the entries draw the same numbers, and so the same samples.

    Args:
        likelihood: The likelihood.
        rows: mu, v, y of every row, and the widening k of its proposal: all [*B, N].
        samples: The number of samples.
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
        self.sampled = likelihood.over_samples()
        log_p_max = likelihood.log_p_max(y).expand(mu.shape)
        of_samples = [row.unsqueeze(-2).expand(self.shape).flatten() for row in (*rows, log_p_max)]
        self.entries = Entries(*of_samples)
        self.e = torch.zeros_like(self.entries.mu)
        self.tries = torch.zeros_like(self.entries.mu)

    def all_entries(self) -> Int[Tensor, " E"]:
        """Return the positions of all entries."""
        return torch.arange(self.e.numel(), device=self.e.device)

    def draw(
        self, still_open: Int[Tensor, " E"], first_round: int = 0, last_round: int = ROUNDS
    ) -> Int[Tensor, " e"]:
        """Draw chosen entries together, and return those that are open after the rounds."""
        rounds_done = first_round
        n = self.shape[-1]
        while rounds_done < last_round and still_open.numel():
            # As many rounds at once as there were before: at most twice the tries that are needed.
            count = min(MAX_ROUNDS_AT_ONCE, max(1, rounds_done))
            rounds = range(rounds_done, min(last_round, rounds_done + count))
            uniform = _uniform_of_rounds(self.draws, still_open, self.samples, n, rounds, 0)
            threshold = _uniform_of_rounds(self.draws, still_open, self.samples, n, rounds, 1)
            at_open = _at_entries(self.sampled, still_open, self.shape)
            proposal, accepted = _propose(at_open, self.entries.at(still_open), uniform, threshold)
            closed = accepted.any(0)
            first = torch.where(closed, accepted.to(torch.uint8).argmax(0), len(rounds) - 1)
            self.e[still_open] = proposal.gather(0, first[None]).squeeze(0)
            self.tries[still_open] += first + 1
            still_open = still_open[~closed]
            rounds_done = rounds.stop
        return still_open

    def draw_one_by_one(
        self, still_open: Int[Tensor, " E"], first_round: int = 0
    ) -> Int[Tensor, " e"]:
        """Draw chosen entries each on its own, and return those that are open after all rounds."""
        never_closed = [self.draw(entry, first_round) for entry in still_open.split(1)]
        return torch.cat(never_closed) if never_closed else still_open

    def finished(self, likelihood: Likelihood, still_open: Int[Tensor, " E"]) -> ProductSample:
        """Return the samples; `auto` draws what is still open, where the paper waits."""
        mu, v, y, _ = self.rows
        if still_open.numel():
            exact = auto.draw(likelihood, mu, v, y, self.samples, self.draws)
            self.e[still_open] = exact.e.flatten()[still_open]
        accepted = torch.full_like(mu, self.samples)
        tries = self.tries.view(self.shape).sum(-2)
        return ProductSample(self.e.view(self.shape), accepted, tries)


@product_sampler("rejection", capturable=False)
def rejection(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw as the paper does (its appendix "Efficient Implementation of Product Sampling").

    It redraws until all entries are accepted, so its operations depend on the data. All open
    entries are redrawn together. Those that are open after 256 rounds come from `auto`.
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    rows = (mu, v, y, widening(likelihood, mu, v, y))
    sampling = RejectionSampling(likelihood, rows, samples, draws)
    return sampling.finished(likelihood, sampling.draw(sampling.all_entries()))


VECTORISED_ROUNDS = 2


@product_sampler("hybrid", capturable=False)
def hybrid(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw the samples of `rejection` as the paper says that its code does.

    Two rounds are drawn for all entries together, what is open then one by one.
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    rows = (mu, v, y, widening(likelihood, mu, v, y))
    sampling = RejectionSampling(likelihood, rows, samples, draws)
    still_open = sampling.draw(sampling.all_entries(), last_round=VECTORISED_ROUNDS)
    still_open = sampling.draw_one_by_one(still_open, first_round=VECTORISED_ROUNDS)
    return sampling.finished(likelihood, still_open)


@product_sampler("individual", capturable=False)
def individual(
    likelihood: Likelihood, mu: Tensor, v: Tensor, y: Tensor, samples: int, draws: Draws
) -> ProductSample:
    """Draw the samples of `rejection`, every entry on its own.

    This is what the paper compares its hybrid procedure with. The proposal, too, is chosen for one
    row after the other.
    """
    mu, v, y = torch.broadcast_tensors(mu, v, y)
    everywhere = torch.arange(mu.numel(), device=mu.device)
    widenings = []
    for row in everywhere.split(1):
        at_row = _at_entries(likelihood, row, mu.shape)
        widenings.append(widening(at_row, mu.flatten()[row], v.flatten()[row], y.flatten()[row]))
    rows = (mu, v, y, torch.cat(widenings).view(mu.shape))
    sampling = RejectionSampling(likelihood, rows, samples, draws)
    still_open = sampling.draw_one_by_one(sampling.all_entries())
    return sampling.finished(likelihood, still_open)


def _uniform_of_rounds(
    draws: Draws, entries: Int[Tensor, "E"], samples: int, n: int, rounds: range, which: int
) -> Float[Tensor, "R E"]:
    """Return uniforms of chosen entries in some rounds; each round has two, `which` is 0 or 1."""
    by_round = [
        draws.uniform_at(entries, samples, n, stream=2 * number + which) for number in rounds
    ]
    return torch.stack(by_round)


def _propose(
    likelihood: Likelihood,
    entries: Entries,
    uniform: Float[Tensor, "R E"],
    threshold: Float[Tensor, "R E"],
) -> tuple[Float[Tensor, "R E"], Bool[Tensor, "R E"]]:
    """Return proposals in q's own units, and which of them are accepted."""
    k = entries.k
    e = k.sqrt() * torch.special.ndtri(uniform)
    f = entries.mu + entries.v.sqrt() * e
    log_p = likelihood.log_prob(f, entries.y)
    # q p / (p_max * proposal density) = p / p_max * sqrt(k) exp(-(1 - 1/k) e^2 / 2)
    log_accept = log_p - entries.log_p_max + k.log() / 2 - (1 - 1 / k) * e.square() / 2
    return e, threshold.log() < log_accept


def _at_entries(
    sampled: Likelihood, entries: Int[Tensor, "E"], shape: tuple[int, ...]
) -> Likelihood:
    """Return the likelihood with its parameters at chosen entries of [..., L, N]."""
    at_entries = {
        name: tensor.expand(shape).flatten()[entries]
        for name, tensor in sampled.own_tensors().items()
    }
    return replace(sampled, **at_entries)
