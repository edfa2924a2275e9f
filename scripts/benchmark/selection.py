"""How good the beta is that cross-validation chooses, on published splits of small UCI sets: every
candidate is also trained on all rows and tested. All splits, folds and betas train as one batch."""

import argparse
import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

import dlmexp
from dlmexp.common.paths import data_root
from dlmexp.core.folds import LOO, Candidate, best_candidate, fold_of_share, folds, pooled_mean
from dlmexp.core.inputs import row_order
from dlmexp.data.dataset import read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import prepare

if TYPE_CHECKING:
    import pandas as pd

SETS = ("uci_wine", "uci_skillcraft", "uci_concrete", "uci_energy")
BETAS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
CLOSE = 0.01
"""Nats per row by which a choice may miss the best beta."""
BEHIND = 0.02
"""Nats per row by which a choice may be behind the ELBO with beta = 1."""


Line = dict[str, Any]
Train = Callable[..., list[dlmexp.Fit]]
"""`dlmexp.fit` with a model and settings."""


class Rule(NamedTuple):
    """An objective, and what chooses its beta: a number of folds, a share of the rows, or "loo"."""

    objective: str
    cv: int | float | str

    def __str__(self) -> str:
        return f"{self.objective} cv={self.cv}"


RULES = {
    str(rule): rule
    for rule in (
        Rule("log_dlm", 5),
        Rule("elbo", LOO),
        Rule("tighter", LOO),
        Rule("log_dlm", 0.1),
        Rule("elbo", 5),
    )
}


class Splits(NamedTuple):
    """The rows of S splits, training rows in the order of each split's seed."""

    X: Float[np.ndarray, "S n D"]
    y: Float[np.ndarray, "S n"]
    X_test: Float[np.ndarray, "S T D"]
    y_test: Float[np.ndarray, "S T"]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, add the results to a file, and print the table of all results in it."""
    args = _arguments(argv)
    out = Path(args.out)
    known = _known(out)
    for rule_name in args.rules:
        for name in args.sets:
            if (name, rule_name) in known:
                continue
            began = perf_counter()
            _append(out, measured(name, RULES[rule_name], args))
            print(f"{name}, {rule_name}: {perf_counter() - began:.0f} s", flush=True)
    import pandas as pd

    print(table(pd.read_csv(out)))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m scripts.benchmark selection", description=__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--rules", nargs="*", default=list(RULES), choices=list(RULES))
    parser.add_argument("--splits", type=int, default=10, help="the first so many published splits")
    parser.add_argument("--M", type=int, default=100, help="inducing inputs")
    parser.add_argument("--inducing", default="kmeans", help="how they are chosen at the start")
    parser.add_argument("--iterations", type=int, default=1000, help="steps of Adam")
    parser.add_argument("--betas", type=float, nargs="*", default=list(BETAS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="selection.csv", help="results; those in it are kept")
    return parser.parse_args(argv)


def _known(out: Path) -> set[tuple[str, str]]:
    """Return the data sets and rules that a file has results of."""
    if not out.exists():
        return set()
    with out.open(encoding="utf-8", newline="") as file:
        return {(line["set"], line["rule"]) for line in csv.DictReader(file)}


def _append(out: Path, lines: Sequence[Line]) -> None:
    """Add lines to a CSV file, which gets a header if it is new."""
    is_new = not out.exists()
    with out.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        if is_new:
            writer.writeheader()
        writer.writerows(lines)


def measured(name: str, rule: Rule, args: argparse.Namespace) -> list[Line]:
    """Return a line per split and beta: the loss that chooses, and the test NLL of a fit to all
    training rows."""
    model = dlmexp.Model(
        "matern52", M=args.M, ard=True, inducing=args.inducing, initial={"lengthscale": "sqrt"}
    )
    settings = dlmexp.Settings(
        lr=0.1,
        final_lr=1e-3,
        decay=args.iterations,
        iterations=args.iterations,
        window=None,
        calibration=False,
    )
    train = partial(dlmexp.fit, model=model, settings=settings, device=args.device)
    splits = read_splits(name, args.splits)
    betas = sorted({*args.betas, 1.0}, reverse=True)
    lines = candidates(splits, rule, betas, train)
    test = (splits.X_test, splits.y_test)
    of_elbo = train(splits.X, splits.y, objective="elbo", betas=1.0, test=test)
    elbo = by_split(of_elbo, "test", 1)[:, 0]
    n = splits.y.shape[1]
    of_set = {"set": name, "n": n, "rule": str(rule)}
    return [{**of_set, **line, "elbo_nll": elbo[line["split"]]} for line in lines]


def candidates(splits: Splits, rule: Rule, betas: Sequence[float], train: Train) -> list[Line]:
    """Return for every split and beta the loss that chooses, and the test NLL."""
    leaves_one_out = rule.cv == LOO
    fits = train(
        splits.X,
        splits.y,
        objective=rule.objective,
        betas=betas,
        validation=LOO if leaves_one_out else None,
        test=(splits.X_test, splits.y_test),
    )
    tested = by_split(fits, "test", len(betas))
    if leaves_one_out:
        losses = by_split(fits, "validation", len(betas))
    else:
        losses = fold_losses(splits, rule, betas, train)
    lines = []
    for split, by_beta in enumerate(losses):
        best = best_candidate(dict(zip(map(Candidate, betas), by_beta, strict=True)))
        for i, beta in enumerate(betas):
            is_chosen = best is not None and best.beta == beta
            line = {"split": split, "beta": beta, "loss": by_beta[i], "nll": tested[split, i]}
            lines.append({**line, "chosen": is_chosen})
    return lines


def read_splits(name: str, count: int) -> Splits:
    """Return the rows of the first published splits, each normalised by its training rows.

    Of test rows, as many are taken as the split with the fewest has.
    """
    spec = replace(read_spec(name), validation="pool")
    data = load(spec, data_root())
    prepared = [prepare(data, spec, split, "100%") for split in range(count)]
    tests = min(len(split.y_test) for split in prepared)
    orders = [row_order(len(split.y_train), seed) for seed, split in enumerate(prepared)]
    return Splits(
        X=np.stack([split.X_train[order] for split, order in zip(prepared, orders, strict=True)]),
        y=np.stack([split.y_train[order] for split, order in zip(prepared, orders, strict=True)]),
        X_test=np.stack([split.X_test[:tests] for split in prepared]),
        y_test=np.stack([split.y_test[:tests] for split in prepared]),
    )


def fold_losses(
    splits: Splits, rule: Rule, betas: Sequence[float], train: Train
) -> Float[np.ndarray, "S B"]:
    """Return the pooled loss on held-out rows by split and beta; NaN where training failed."""
    count, n = splits.y.shape
    rows = folds(n, rule.cv) if isinstance(rule.cv, int) else fold_of_share(n, float(rule.cv))
    folded = [part[:, chosen] for chosen in rows for part in (splits.X, splits.y)]
    # [S, F, ...] as [S F, ...]
    X, y, X_held_out, y_held_out = [part.reshape(-1, *part.shape[2:]) for part in folded]
    fits = train(X, y, objective=rule.objective, betas=betas, validation=(X_held_out, y_held_out))
    by_fold = by_split(fits, "validation", len(betas)).reshape(count, -1, len(betas))
    losses = np.empty((count, len(betas)))
    for split in range(count):
        for i in range(len(betas)):
            losses[split, i] = pooled_mean("nll", by_fold[split, :, i].tolist())
    return losses


def by_split(fits: Sequence[dlmexp.Fit], part: str, betas: int) -> Float[np.ndarray, "S B"]:
    """Return the NLL of fits, which come split by split; NaN where training failed."""
    nlls = [np.nan if fit.failed else fit.metrics[part]["nll"] for fit in fits]
    return np.array(nlls).reshape(-1, betas)


def table(results: "pd.DataFrame") -> str:
    """Return a line per data set and rule: how often choices are good, and how far off they are."""
    splits = ["set", "rule", "split"]
    best = results.groupby(splits, sort=False)["nll"].min().rename("best_nll").reset_index()
    choices = results[results["chosen"]].merge(best, on=splits)
    choices["lost"] = choices["nll"] - choices["best_nll"]
    choices["behind"] = choices["nll"] - choices["elbo_nll"]
    lines = [
        "| data (n) | choice | within 0.01 of the best beta | mean loss, largest "
        "| NLL, ELBO's | more than 0.02 behind ELBO, largest | betas chosen |",
        "|" + "---|" * 7,
    ]
    for (name, rule), part in choices.groupby(["set", "rule"], sort=False):
        betas = ", ".join(
            f"{beta:g} ({count})" for beta, count in part["beta"].value_counts().items()
        )
        cells = [
            f"{name} ({part['n'].iloc[0]})",
            str(rule),
            f"{(part['lost'] <= CLOSE).sum()} of {len(part)}",
            f"{part['lost'].mean():.3f}, {part['lost'].max():.3f}",
            f"{part['nll'].mean():.3f}, {part['elbo_nll'].mean():.3f}",
            f"{(part['behind'] > BEHIND).sum()}, {part['behind'].max():.3f}",
            betas,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
