"""ELBO and direct loss minimization for one sparse Gaussian process, in plain PyTorch.

Wei, Sheth, Khardon: "Direct Loss Minimization for Sparse Gaussian Processes", AISTATS 2021. Run

    python examples/dlm.py

to train the same model twice on drawn data, once by each objective, and to draw both predictions
into dlm.png. It needs torch and matplotlib alone.

The model has a function f with a Gaussian process prior, targets y = f(x) + noise, and M inducing
inputs Z that summarise f. Its posterior is q(u) for the values u = f(Z), written as u = Luu w with
q(w) = N(m, L L^T). Both objectives have the form

    sum_i loss_i + beta KL(q(w) || N(0, I)).

The ELBO has loss_i = E_q[-log p(y_i | f_i)]. Direct loss minimization has the loss with which the
prediction will be judged, loss_i = -log E_q[p(y_i | f_i)]: the expectation is inside the logarithm.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import softplus

torch.set_default_dtype(torch.float64)
M = 10  # inducing inputs
RowLoss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def drawn_data(n: int = 300) -> tuple[Tensor, Tensor]:
    """Return inputs [n, 1] and targets [n] of a sine whose noise grows from left to right."""
    random = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(n, generator=random) - 2
    noise = 0.05 + 0.5 * (x > 0) * x
    y = torch.sin(3 * x) + noise * torch.randn(n, generator=random)
    return x[:, None], y


def initial_parameters(X: Tensor) -> dict[str, Tensor]:
    """Return what Adam changes: q at the prior, and the first M rows as inducing inputs."""
    parameters = {"m": torch.zeros(M), "L": torch.eye(M), "Z": X[:M].clone()}
    for name, value in {"lengthscale": 1.0, "outputscale": 1.0, "noise": 0.1}.items():
        # These are positive: Adam changes x, and the model uses softplus(x) = log(1 + e^x).
        parameters[name] = torch.tensor(math.log(math.expm1(value)))
    return {name: value.requires_grad_() for name, value in parameters.items()}


def kernel(X1: Tensor, X2: Tensor, lengthscale: Tensor, outputscale: Tensor) -> Tensor:
    """Return the RBF kernel matrix [N1, N2]."""
    # k(x, x') = outputscale exp(-|x - x'|^2 / (2 lengthscale^2))
    squared_distance = (X1[:, None, :] - X2[None, :, :]).square().sum(-1)
    return outputscale * torch.exp(-squared_distance / (2 * lengthscale**2))


def marginals(X: Tensor, parameters: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return mean and variance [N] of f at every row of X, under q."""
    Z = parameters["Z"]
    lengthscale = softplus(parameters["lengthscale"])
    outputscale = softplus(parameters["outputscale"])
    # A = Luu^-1 Kuf, where Luu Luu^T = Kuu. A little on the diagonal keeps rounding errors away.
    Kuu = kernel(Z, Z, lengthscale, outputscale) + 1e-6 * outputscale * torch.eye(M)
    Kuf = kernel(Z, X, lengthscale, outputscale)
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(Kuu), Kuf, upper=False)
    # mu_i = A_i . m
    mean = A.T @ parameters["m"]
    # v_i = k(x_i, x_i) - |A_i|^2 + |L^T A_i|^2
    variance = outputscale - A.square().sum(0) + (parameters["L"].tril().T @ A).square().sum(0)
    return mean, variance


def elbo_loss(mean: Tensor, variance: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Return E_q[-log N(y; f, noise)] for every row."""
    # 1/2 log(2 pi noise) + ((y - mu)^2 + v) / (2 noise)
    return 0.5 * torch.log(2 * math.pi * noise) + ((y - mean) ** 2 + variance) / (2 * noise)


def log_loss(mean: Tensor, variance: Tensor, y: Tensor, noise: Tensor) -> Tensor:
    """Return -log E_q[N(y; f, noise)] = -log N(y; mu, v + noise) for every row."""
    # 1/2 log(2 pi (v + noise)) + (y - mu)^2 / (2 (v + noise))
    total = variance + noise
    return 0.5 * torch.log(2 * math.pi * total) + (y - mean) ** 2 / (2 * total)


def kl_to_prior(m: Tensor, L: Tensor) -> Tensor:
    """Return KL(N(m, L L^T) || N(0, I))."""
    # 1/2 (|m|^2 + |L|^2 - M) - sum log |L_jj|
    log_det = L.diagonal().abs().log().sum()
    return 0.5 * (m.square().sum() + L.square().sum() - len(m)) - log_det


def objective(
    row_loss: RowLoss, X: Tensor, y: Tensor, parameters: dict[str, Tensor], beta: float
) -> Tensor:
    """Return (sum_i loss_i + beta KL) / n."""
    mean, variance = marginals(X, parameters)
    losses = row_loss(mean, variance, y, softplus(parameters["noise"]))
    penalty = kl_to_prior(parameters["m"], parameters["L"].tril())
    return losses.mean() + beta * penalty / len(y)


def train(
    row_loss: RowLoss, X: Tensor, y: Tensor, beta: float = 1.0, steps: int = 2000, lr: float = 0.02
) -> tuple[dict[str, Tensor], list[float]]:
    """Return the trained parameters, and the objective before every step of Adam."""
    parameters = initial_parameters(X)
    adam = torch.optim.Adam(parameters.values(), lr=lr)
    history = []
    for _ in range(steps):
        adam.zero_grad()
        value = objective(row_loss, X, y, parameters, beta)
        value.backward()
        adam.step()
        history.append(value.item())
    return parameters, history


def main() -> None:
    """Train by both objectives, print the log loss of new rows, and draw the predictions."""
    import matplotlib.pyplot as plt

    X, y = drawn_data(600)
    X, X_new, y, y_new = X[:300], X[300:], y[:300], y[300:]
    grid = torch.linspace(-2, 2, 200)[:, None]
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.5), sharey=True, layout="constrained")
    objectives = [("ELBO", elbo_loss), ("DLM", log_loss)]
    for panel, (name, row_loss) in zip(panels, objectives, strict=True):
        parameters, _ = train(row_loss, X, y)
        with torch.no_grad():
            noise = softplus(parameters["noise"])
            score = log_loss(*marginals(X_new, parameters), y_new, noise).mean().item()
            mean, variance = marginals(grid, parameters)
            width = 1.96 * (variance + noise).sqrt()
        print(f"{name}: mean log loss of new rows {score:.3f}")
        panel.plot(X[:, 0], y, ".", color="0.7", markersize=3)
        panel.plot(grid[:, 0], mean, color="C0")
        panel.fill_between(grid[:, 0], mean - width, mean + width, color="C0", alpha=0.2)
        panel.set_title(f"{name}: log loss {score:.3f}")
        panel.set_xlabel("x")
    panels[0].set_ylabel("y, mean and 95 % interval")
    figure.savefig("dlm.png", dpi=150)


if __name__ == "__main__":
    main()
