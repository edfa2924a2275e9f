"""How good the beta is that cross-validation chooses, on published splits of small UCI sets: every
candidate is also trained on all rows and tested."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import dlmexp
from dlmexp.common.paths import data_root
from dlmexp.data.dataset import read_spec
from dlmexp.data.raw_files import load
from dlmexp.data.splits import Prepared, prepare

SETS = ("uci_wine", "uci_skillcraft", "uci_concrete", "uci_energy")
BETAS = (100.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)
CLOSE = 0.01
"""Nats per row by which a choice may miss the best beta."""
BEHIND = 0.02
"""Nats per row by which a choice may be behind the ELBO with beta = 1."""


class Rule(NamedTuple):
    """An objective, and what chooses its beta: a number of folds, a share of the rows, or "loo"."""

    objective: str
    cv: int | float | str

    def __str__(self) -> str:
        return f"{self.objective}, cv={self.cv}"


RULES = (
    Rule("log_dlm", 5),
    Rule("log_dlm", 0.1),
    Rule("elbo", 5),
    Rule("elbo", "loo"),
    Rule("tighter", "loo"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, add the results to a file, and print the table of all results in it."""
    args = _arguments(argv)
    out = Path(args.out)
    known = _known(out)
    for name in args.sets:
        for split in range(args.splits):
            if (name, split) in known:
                continue
            lines = list(measured(name, split, args))
            with out.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
            print(f"{name}: split {split}", flush=True)
    print(table(pd.read_json(out, lines=True)))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m scripts.benchmark selection", description=__doc__)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--splits", type=int, default=10, help="the first so many published splits")
    parser.add_argument("--M", type=int, default=100, help="inducing inputs")
    parser.add_argument("--iterations", type=int, default=1000, help="steps of Adam")
    parser.add_argument("--betas", type=float, nargs="*", default=list(BETAS))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="selection.jsonl", help="results; those in it are kept")
    return parser.parse_args(argv)


def _known(out: Path) -> set[tuple[str, int]]:
    """Return the data sets and splits that a file has results of."""
    if not out.exists():
        return set()
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    return {(line["set"], line["split"]) for line in lines}


def measured(name: str, split: int, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the choice of every rule on one split, and the test NLL of each of its candidates."""
    rows = _rows(name, split)
    options: dict[str, Any] = {
        "model": dlmexp.Model(
            "matern52", M=args.M, ard=True, inducing="kmeans", initial={"lengthscale": "sqrt"}
        ),
        "settings": dlmexp.Settings(
            lr=0.3, final_lr=3e-3, decay=args.iterations, iterations=args.iterations, window=None
        ),
        "betas": sorted({*args.betas, 1.0}),
        "device": args.device,
    }
    tested = {}
    for objective in dict.fromkeys(["elbo", *(rule.objective for rule in RULES)]):
        tested[objective] = _test_nlls(rows, split, objective, options)
    for rule in RULES:
        result = dlmexp.cross_validate(
            rows.X_train, rows.y_train, objective=rule.objective, seed=split, cv=rule.cv, **options
        )
        nlls = tested[rule.objective]
        yield {
            "set": name,
            "n": len(rows.y_train),
            "split": split,
            "rule": str(rule),
            "beta": result.chosen.beta,
            "nll": nlls[result.chosen.beta],
            "best_beta": min(nlls, key=lambda beta: nlls[beta]),
            "best_nll": min(nlls.values()),
            "elbo_nll": tested["elbo"][1.0],
        }


def _rows(name: str, split: int) -> Prepared:
    """Return the training and test rows of a published split, normalised by the training rows."""
    spec = replace(read_spec(name), validation="pool")
    return prepare(load(spec, data_root()), spec, split, "100%")


def _test_nlls(
    rows: Prepared, seed: int, objective: str, options: dict[str, Any]
) -> dict[float, float]:
    """Return the test NLL by beta of fits to all training rows."""
    fits = dlmexp.fit(
        rows.X_train,
        rows.y_train,
        objective=objective,
        seeds=seed,
        test=(rows.X_test, rows.y_test),
        **options,
    )
    return {fit.beta: fit.metrics["test"]["nll"] for fit in fits if not fit.failed}


def table(results: pd.DataFrame) -> str:
    """Return a line per data set and rule: how often choices are good, and how far off they are."""
    loss = results["nll"] - results["best_nll"]
    behind = results["nll"] - results["elbo_nll"]
    results = results.assign(loss=loss, behind=behind, close=loss <= CLOSE, late=behind > BEHIND)
    lines = [
        "| data (n) | choice | within 0.01 of the best beta | mean loss, largest "
        "| NLL, ELBO's | more than 0.02 behind ELBO, largest | betas chosen |",
        "|" + "---|" * 7,
    ]
    for (name, rule), part in results.groupby(["set", "rule"], sort=False):
        betas = ", ".join(
            f"{beta:g} ({count})" for beta, count in part["beta"].value_counts().items()
        )
        cells = [
            f"{name} ({part['n'].iloc[0]})",
            str(rule),
            f"{part['close'].sum()} of {len(part)}",
            f"{part['loss'].mean():.3f}, {part['loss'].max():.3f}",
            f"{part['nll'].mean():.3f}, {part['elbo_nll'].mean():.3f}",
            f"{part['late'].sum()}, {np.round(part['behind'].max(), 3):.3f}",
            betas,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
