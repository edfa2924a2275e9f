"""The method of the paper for one model and one beta, written as plainly as possible.

The paper is *Direct Loss Minimization for Sparse Gaussian Processes* (Wei, Sheth, Khardon, AISTATS
2021). Read this file before the other modules. It needs torch alone, computes with dense matrices,
and trains one model by torch's Adam. `dlmexp.fit` computes the same for many models at once and
much faster; the tests compare their results. Section numbers are those of docs/SPEC.md.

    result = reference.train(X, y, likelihood="probit", objective="log_dlm", beta=0.1, M=20)
    result.log_loss(X_test, y_test)

Symbols (docs/SPEC.md has all of them): inducing inputs Z, kernel matrices Kuu = k(Z, Z) and
Kuf = k(Z, X), Cholesky factor Luu of Kuu, A = Luu^-1 Kuf with columns A_i, and in whitened
coordinates u = Luu w with q(w) = N(m, L L^T).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

JITTER = 1e-6
"""Added to the diagonal of Kuu, relative to the outputscale."""
NODES = 801
"""Number of nodes of the quadrature."""
POSITIVE = ("lengthscale", "outputscale", "noise")
"""Hyperparameters that are positive."""

LikelihoodName = Literal["gaussian", "probit", "poisson"]
ObjectiveName = Literal["elbo", "log_dlm", "sq_dlm", "fitc", "power_ep"]
Hyperparameters = dict[str, Tensor]
"""Inducing inputs "Z" [M, D], and the numbers "mean", "lengthscale", "outputscale", "noise"."""


# 1. The model (section 1) --------------------------------------------------------------------


def kernel(X1: Tensor, X2: Tensor, h: Hyperparameters) -> Tensor:
    """Return the RBF kernel matrix [N1, N2]."""
    # K(x, x') = s exp(-|x - x'|^2 / (2 l^2))
    squared_distance = (X1[:, None, :] - X2[None, :, :]).square().sum(-1)
    return h["outputscale"] * torch.exp(-squared_distance / (2 * h["lengthscale"] ** 2))


def projection(X: Tensor, h: Hyperparameters) -> Tensor:
    """Return A = Luu^-1 Kuf [M, N]."""
    M = len(h["Z"])
    # Without jitter on its diagonal, Kuu may have no Cholesky factor in floating point.
    Kuu = kernel(h["Z"], h["Z"], h) + JITTER * h["outputscale"] * torch.eye(M, dtype=X.dtype)
    Luu = torch.linalg.cholesky(Kuu)
    return torch.linalg.solve_triangular(Luu, kernel(h["Z"], X, h), upper=False)


def marginals(X: Tensor, h: Hyperparameters, m: Tensor, L: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean mu and variance v of f at every row [N], under q."""
    A = projection(X, h)
    # mu_i = mean + A_i . m
    mu = h["mean"] + A.T @ m
    # v_i = Kff_ii - |A_i|^2 + |L^T A_i|^2
    v = h["outputscale"] - A.square().sum(0) + (L.T @ A).square().sum(0)
    return mu, v


def kl(m: Tensor, L: Tensor) -> Tensor:
    """Return KL(q(w) || N(0, I))."""
    # KL = 1/2 (|m|^2 + |L|_F^2 - M - 2 sum log diag(L))
    log_det = L.diagonal().abs().log().sum()
    return 0.5 * (m.square().sum() + L.square().sum() - len(m) - 2 * log_det)


# 2. Likelihoods (section 3) ------------------------------------------------------------------


def quadrature(mu: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return nodes f_k [nodes, N] and log weights [nodes, 1] of expectations under N(f; mu, v)."""
    # E[g(f)] = sum_k w_k g(mu + sqrt(v) e_k), by the trapezoidal rule. With so small a distance
    # between nodes, it is exact up to rounding, even where p(y|f) is much narrower than q(f).
    e = torch.linspace(-10, 10, NODES, dtype=mu.dtype)[:, None]
    log_w = torch.log_softmax(-0.5 * e.square(), 0)
    return mu + v.sqrt() * e, log_w


def log_likelihood(name: LikelihoodName, f: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Return log p(y|f)."""
    if name == "gaussian":  # N(y; f, noise)
        return -0.5 * ((y - f).square() / noise + torch.log(2 * math.pi * noise))
    if name == "probit":  # Phi((2y - 1) f)
        return torch.special.log_ndtr((2 * y - 1) * f)
    return y * f - f.exp() - torch.lgamma(y + 1)  # Poisson with rate exp(f)


def log_loss(name: LikelihoodName, mu: Tensor, v: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Return -log E_q[p(y|f)] per row: the log loss of the predictive distribution."""
    if name == "gaussian":  # a Gaussian with variance v + noise
        return 0.5 * ((y - mu).square() / (v + noise) + torch.log(2 * math.pi * (v + noise)))
    if name == "probit":  # -log Phi((2y - 1) mu / sqrt(1 + v))
        return -torch.special.log_ndtr((2 * y - 1) * mu / (1 + v).sqrt())
    f, log_w = quadrature(mu, v)
    return -torch.logsumexp(log_w + log_likelihood(name, f, y, noise), 0)


def expected_log_loss(
    name: LikelihoodName, mu: Tensor, v: Tensor, y: Tensor, noise: Tensor
) -> Tensor:
    """Return E_q[-log p(y|f)] per row: the loss in the ELBO."""
    if name == "gaussian":
        return -log_likelihood(name, mu, y, noise) + v / (2 * noise)
    if name == "poisson":  # exp(mu + v/2) - y mu + log y!
        return (mu + v / 2).exp() - y * mu + torch.lgamma(y + 1)
    f, log_w = quadrature(mu, v)
    return -(log_w.exp() * log_likelihood(name, f, y, noise)).sum(0)


def predictive_mean(name: LikelihoodName, mu: Tensor, v: Tensor) -> Tensor:
    """Return E[y]: for binary y it is the probability of class 1."""
    if name == "gaussian":
        return mu
    if name == "probit":
        return torch.special.ndtr(mu / (1 + v).sqrt())
    return (mu + v / 2).exp()


# 3. Objectives (section 2), all divided by the number of rows n ------------------------------


def explicit_objective(
    objective: ObjectiveName,
    likelihood: LikelihoodName,
    X: Tensor,
    y: Tensor,
    h: Hyperparameters,
    m: Tensor,
    L: Tensor,
    beta: float,
) -> Tensor:
    """Return the objective of the ELBO or of log-loss DLM as a function of q."""
    mu, v = marginals(X, h, m, L)
    row_loss = expected_log_loss if objective == "elbo" else log_loss
    losses = row_loss(likelihood, mu, v, y, h["noise"])
    # 1/n ( sum_i loss_i + beta KL )
    return losses.mean() + beta * kl(m, L) / len(y)


def collapsed_objective(
    objective: ObjectiveName, X: Tensor, y: Tensor, h: Hyperparameters, beta: float
) -> Tensor:
    """Return an objective for Gaussian noise as a function of the hyperparameters alone.

    For "elbo" and "sq_dlm" it is the minimum over q. For "fitc" and "power_ep" it is the
    approximate -log p(y) of these methods. For "power_ep", `beta` is the power alpha.
    """
    n = len(y)
    noise = h["noise"]
    y = y - h["mean"]
    A = projection(X, h)
    # Qff = A^T A,  r_i = Kff_ii - Qff_ii
    Qff = A.T @ A
    residual = h["outputscale"] - Qff.diagonal()
    eye = torch.eye(n, dtype=X.dtype)
    if objective == "sq_dlm":
        # 1/2 (y.y - y.A^T m) at m = (A A^T + beta I)^-1 A y
        m, _ = optimal_q(objective, A, y, h, beta)
        return 0.5 * (y @ y - y @ (A.T @ m)) / n
    if objective == "elbo":
        # With t = beta noise:
        # n/2 log(2 pi noise) + beta [ -log N(y; 0, Qff + t I) + sum_i r_i/(2t) - n/2 log(2 pi t) ]
        t = beta * noise
        evidence = log_normal(y, Qff + t * eye)
        bracket = -evidence + residual.sum() / (2 * t) - n / 2 * torch.log(2 * math.pi * t)
        return (n / 2 * torch.log(2 * math.pi * noise) + beta * bracket) / n
    # Power EP: -log N(y; 0, Qff + diag(alpha r_i + noise))
    #     + (1 - alpha)/(2 alpha) sum_i log(1 + alpha r_i / noise). FITC is power EP with alpha = 1.
    alpha = 1.0 if objective == "fitc" else beta
    evidence = log_normal(y, Qff + torch.diag(alpha * residual + noise))
    correction = (1 - alpha) / (2 * alpha) * torch.log1p(alpha * residual / noise).sum()
    return (correction - evidence) / n


def optimal_q(
    objective: ObjectiveName, A: Tensor, y: Tensor, h: Hyperparameters, beta: float
) -> tuple[Tensor, Tensor]:
    """Return m and L of the q that belongs to `collapsed_objective`.

    For "elbo" and "sq_dlm" it minimises the objective. For "fitc" and "power_ep" it is the
    approximate posterior of these methods.

    Args:
        objective: The objective.
        A: The projection of the training rows [M, n].
        y: The targets minus the prior mean [n].
        h: The hyperparameters.
        beta: The weight of the KL term; for "power_ep" the power alpha.
    """
    M = len(A)
    eye = torch.eye(M, dtype=A.dtype)
    if objective == "sq_dlm":
        # m = (A A^T + beta I)^-1 A y. The square loss does not depend on the covariance.
        m = torch.linalg.solve(A @ A.T + beta * eye, A @ y)
        return m, torch.zeros_like(eye)
    # q is the posterior of the linear model y_i = A_i . w + e_i with e_i ~ N(0, D_i), where D_i is
    # beta * noise for the ELBO (Titsias), and alpha * r_i + noise for power EP and FITC.
    if objective == "elbo":
        D = (beta * h["noise"]).expand(len(y))
    else:
        alpha = 1.0 if objective == "fitc" else beta
        residual = h["outputscale"] - A.square().sum(0)
        D = alpha * residual + h["noise"]
    # q(w) = N((I + H)^-1 A D^-1 y, (I + H)^-1) with H = A D^-1 A^T
    covariance = torch.linalg.inv(eye + (A / D) @ A.T)
    m = covariance @ ((A / D) @ y)
    return m, torch.linalg.cholesky(covariance)


def log_normal(y: Tensor, covariance: Tensor) -> Tensor:
    """Return log N(y; 0, covariance)."""
    zeros = torch.zeros_like(y)
    return torch.distributions.MultivariateNormal(zeros, covariance).log_prob(y)


# 4. Training (section 6) ---------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A trained model.

    Attributes:
        likelihood: p(y|f).
        hyperparameters: The hyperparameters, learned or held.
        m: The mean of q(w) = N(m, L L^T).
        L: The Cholesky factor of the covariance of q(w).
        objective: The objective per row at every iteration.
        converged: Whether the stopping rule was met.
    """

    likelihood: LikelihoodName
    hyperparameters: Hyperparameters
    m: Tensor
    L: Tensor
    objective: list[float]
    converged: bool

    def mean(self, X: Tensor) -> Tensor:
        """Return the predicted mean of y at rows X; for binary y, the probability of class 1."""
        mu, v = marginals(X, self.hyperparameters, self.m, self.L)
        return predictive_mean(self.likelihood, mu, v)

    def log_loss(self, X: Tensor, y: Tensor) -> float:
        """Return the NLL: the mean of -log E_q[p(y|f)] over rows."""
        mu, v = marginals(X, self.hyperparameters, self.m, self.L)
        return log_loss(self.likelihood, mu, v, y, self.hyperparameters["noise"]).mean().item()


def initial_hyperparameters(X: Tensor, M: int) -> Hyperparameters:
    """Return the initial values: the first M rows are the inducing inputs."""
    return {
        "lengthscale": torch.tensor(1.0, dtype=X.dtype),
        "outputscale": torch.tensor(1.0, dtype=X.dtype),
        "noise": torch.tensor(0.1, dtype=X.dtype),
        "mean": torch.tensor(0.0, dtype=X.dtype),
        "Z": X[:M],
    }


def train(  # noqa: PLR0913 - each is a choice of the method
    X: Tensor,
    y: Tensor,
    likelihood: LikelihoodName = "gaussian",
    objective: ObjectiveName = "log_dlm",
    beta: float = 1.0,
    M: int = 20,
    learns_mean: bool = False,
    collapsed: bool = False,
    held: Hyperparameters | None = None,
    lr: float = 0.1,
    iterations: int = 3000,
    window: int = 20,
    tolerance: float = 1e-4,
) -> Trained:
    """Train a sparse Gaussian process.

    Args:
        X: Inputs [n, D], float64.
        y: Targets [n], float64: numbers, 0 and 1, or counts.
        likelihood: p(y|f).
        objective: What is minimised.
        beta: The weight of the KL term; for "power_ep" the power alpha.
        M: Number of inducing inputs.
        learns_mean: Whether the prior mean is a learned constant; otherwise it is 0.
        collapsed: Whether to use the closed form of q. It exists for Gaussian noise and all
            objectives but "log_dlm". All objectives but "elbo" and "log_dlm" need it.
        held: Hyperparameters to hold, such as those of another model, so that q alone is learned.
            None: hyperparameters are learned, too.
        lr: Adam's learning rate.
        iterations: The largest number of iterations.
        window: The number of last iterations whose objectives the stopping rule compares.
        tolerance: Training has converged when the largest and the smallest of these objectives, per
            row, differ by at most this.
    """
    # 1. The parameters, and which of them are learned
    start = initial_hyperparameters(X, M) if held is None else held
    values = unconstrained(start, M)
    learned = learned_names(collapsed, learns_hyperparameters=held is None, learns_mean=learns_mean)
    for name in learned:
        values[name].requires_grad_()

    def objective_per_row() -> Tensor:
        h, m, L = constrained(values)
        if collapsed:
            return collapsed_objective(objective, X, y, h, beta)
        return explicit_objective(objective, likelihood, X, y, h, m, L, beta)

    # 2. Minimise. With a closed form of q and hyperparameters held, nothing is left to learn.
    parameters = [values[name] for name in learned]
    history: list[float] = []
    converged = False
    if parameters:
        history, converged = minimise(
            objective_per_row, parameters, lr, iterations, window, tolerance
        )
    # 3. The trained model
    with torch.no_grad():
        h, m, L = constrained(values)
        if collapsed:
            A = projection(X, h)
            m, L = optimal_q(objective, A, y - h["mean"], h, beta)
        if not parameters:
            history = [objective_per_row().item()]
    hyperparameters = {name: value.detach() for name, value in h.items()}
    return Trained(
        likelihood=likelihood,
        hyperparameters=hyperparameters,
        m=m.detach(),
        L=L.detach(),
        objective=history,
        converged=converged,
    )


def minimise(
    objective: Callable[[], Tensor],
    parameters: list[Tensor],
    lr: float,
    iterations: int,
    window: int,
    tolerance: float,
) -> tuple[list[float], bool]:
    """Minimise the objective by Adam, changing the parameters in place.

    Returns:
        The objective at every iteration, and whether the stopping rule was met.
    """
    adam = torch.optim.Adam(parameters, lr=lr)
    history: list[float] = []
    while len(history) < iterations:
        adam.zero_grad()
        value = objective()
        value.backward()
        adam.step()
        history.append(value.item())
        recent = history[-window:]
        if len(history) >= window and max(recent) - min(recent) <= tolerance:
            return history, True
    return history, False


def learned_names(collapsed: bool, learns_hyperparameters: bool, learns_mean: bool) -> list[str]:
    """Return the names of the parameters that Adam learns."""
    names = [] if collapsed else ["m", "L"]  # collapsed: q follows from the hyperparameters
    if learns_hyperparameters:
        names += ["lengthscale", "outputscale", "noise", "Z"]
        if learns_mean:
            names.append("mean")
    return names


def unconstrained(h: Hyperparameters, M: int) -> dict[str, Tensor]:
    """Return the values that `constrained` turns into hyperparameters, m and L.

    Here, q is the prior: m = 0 and L = I, for M whitened inducing variables.
    """
    values = {"mean": h["mean"].clone(), "Z": h["Z"].clone()}
    for name in POSITIVE:
        # The inverse of softplus is log(e^x - 1).
        values[name] = torch.log(torch.expm1(h[name]))
    values["m"] = torch.zeros(M, dtype=h["Z"].dtype)
    values["L"] = torch.eye(M, dtype=h["Z"].dtype)
    return values


def constrained(values: dict[str, Tensor]) -> tuple[Hyperparameters, Tensor, Tensor]:
    """Return hyperparameters, m and L from parameters without constraints.

    Softplus makes hyperparameters positive, and L keeps only its lower triangle.
    """
    h = {"mean": values["mean"], "Z": values["Z"]}
    for name in POSITIVE:
        h[name] = softplus(values[name])
    return h, values["m"], values["L"].tril()
