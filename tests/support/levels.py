"""Made-up records with levels chosen so that a claim holds or fails."""

from typing import Any

from dlmexp.claims.finding import Finding

from dlmexp.claims.judge import Judgement
from dlmexp.records.record import Record
from tests.support.made_up import fit, method_cell


def fits(
    dataset: str, metric: str, levels: dict[str, float], seeds: int = 5, n: int = 100, **changes: Any
) -> list[Record]:
    """One fit per method and seed: its level, what all methods share in a repetition, and a little noise."""
    records = []
    for method, level in levels.items():
        settings = changes if method.endswith("log_dlm") else {k: v for k, v in changes.items() if k != "samples"}
        if not method.endswith("log_dlm"):
            settings = {k: v for k, v in settings.items() if k != "estimator"}
        for seed in range(seeds):
            value = level + 0.05 * seed + 0.001 * ((7 * seed + 3 * len(method) + 5 * n) % 11 - 5) / 5
            beta = {"beta": 2.0} if method not in ("elbo", "fitc") else {}
            of = method_cell(method, dataset, seed=seed, n=n, **({**beta, **settings}))
            metrics = {metric: value} if metric == "nll" else {"nll": value, metric: value}
            if of.objective == "sq_dlm":
                metrics = {"mse": value}
            records.append(fit(of, **metrics))
    return records


def ends(dataset: str, levels: dict[Any, float], seeds: int = 5, **changes: Any) -> list[Record]:
    """Learning curves that end at a level: (method, beta, estimator, samples) -> test NLL."""
    records = []
    for (method, beta, estimator, samples), level in levels.items():
        for seed in range(seeds):
            value = level + 0.03 * seed + 0.0003 * ((3 * seed + len(estimator) + (samples or 0)) % 7 - 3)
            of = method_cell(
                method,
                dataset,
                n=2000,
                seed=seed,
                beta=beta,
                estimator=estimator,
                samples=samples,
                evaluate="10",
                **changes,
            )
            records.append(fit(of, nll=value))
    return records


def on(judgement: Judgement, dataset: str, about: str = "", how: str | None = None) -> list[Finding]:
    return [
        found
        for found in judgement.findings
        if found.dataset == dataset and about in found.about and how in (None, found.parameterisation)
    ]
