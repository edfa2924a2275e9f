"""What the page says in numbers, all from the tidy table: head, findings, table of results, how they were made."""

from typing import Any

import numpy as np
import pandas as pd

from dlmexp.catalogue import labelled
from dlmexp.claims.evidence import Evidence
from dlmexp.claims.judge import Column, rows_of
from dlmexp.claims.statistics import compare
from dlmexp.claims.thresholds import ALPHA
from dlmexp.labels import METRICS, estimator_label, method_label
from dlmexp.records.results import ResultsFolder
from dlmexp.records.table import IDENTITY, as_text

MADE = ["command", "commit", "version", "device", "host", "python", "torch", "gpytorch"]
LINE = [*(name for name in IDENTITY if name not in ("task", "size", "seed")), "M"]
MOST_ROWS = 4000  # beyond that a browser on a phone gives up; `dlmexp collect` has the whole table


def made(results: ResultsFolder) -> pd.DataFrame:
    """Each way in which records were made (a command, commit, machine and versions) with their number, the most
    frequent first; the index is the number by which the page refers to it."""
    cells = results.candidates.drop_duplicates("key")
    return (
        cells.groupby(MADE, dropna=False, observed=True)
        .size()
        .rename("records")
        .sort_values(ascending=False)
        .reset_index()
    )


def overview(results: ResultsFolder) -> dict[str, Any]:
    """Counts, datasets with what they stand in for, experiments and times."""
    cells = results.candidates.drop_duplicates("key")
    named = cells[["dataset", "stands_for"]].drop_duplicates().sort_values("dataset").itertuples(index=False)
    times = cells["time"].dropna().astype(object)
    return {
        "cells": len(cells), "failed": int((cells["status"] != "done").sum()),
        "datasets": [labelled(dataset, of) for dataset, of in named],
        "experiments": sorted(set(", ".join(results.candidates["experiment"].unique()).split(", "))),
        "seconds": float(cells["seconds"].sum()),
        "first": str(times.min())[:10] if len(times) else "", "last": str(times.max())[:10] if len(times) else "",
    }  # fmt: skip


def failures(results: ResultsFolder, examples: int = 5) -> list[tuple[str, int, list[str]]]:
    """Reason, number of cells and some of them, the most frequent first."""
    cells = results.candidates.drop_duplicates("key")
    cells = cells[cells["status"] != "done"]
    found = []
    for reason, some in cells.groupby(cells["reason"].astype(object).fillna("no reason given"), sort=True):
        shown = [
            f"{c.dataset} n={c.n} seed={c.seed} {method_label(str(c.method))}" for c in some.head(examples).itertuples()
        ]  # pyright: ignore
        found.append((str(reason), len(some), shown))
    return sorted(found, key=lambda item: -item[1])


def findings(results: ResultsFolder, column: Column, most: int = 5) -> list[dict[str, Any]]:
    """How the best method stands to ELBO in test NLL at the largest size of each dataset, with the 95 % interval of the
    paired difference; the largest differences, measured in margins, first."""
    table = rows_of(results.table, column)
    evidence = Evidence(results, table, rows_of(results.candidates, column))
    methods = [name for name in table["method"].unique() if name != "elbo"]
    found = []
    for dataset in evidence.sizes:
        for q in dict.fromkeys(q for name, q in evidence.places(dataset) if name == dataset):
            elbo, margin = evidence.fit(dataset, "elbo", "nll", q), evidence.margin(dataset, "nll", q)
            lines = {name: evidence.fit(dataset, name, "nll", q) for name in methods}
            if not lines:
                continue
            ours = np.stack([line.values for line in lines.values()])
            several = compare(ours, np.broadcast_to(elbo.values, ours.shape))
            known = np.where(several.repetitions > 1, several.ours, np.inf)
            sizes = np.flatnonzero(np.isfinite(known).any(0) & np.isfinite(margin))
            if not len(sizes):
                continue
            s = sizes[-1]
            k = int(known[:, s].argmin())
            line = list(lines.values())[k]
            found.append({
                "dataset": labelled(dataset, evidence.stands_for.get(dataset)), "q": q, "margin": float(margin[s]),
                "n": int(evidence.sizes[dataset][s]), "method": line.name, "nll": several.ours[k, s],
                "elbo": several.rival[k, s], "difference": several.difference[k, s],
                "error": several.half_width(ALPHA / 2)[k, s], "repetitions": int(several.repetitions[k, s]),
                **evidence.made(line.at, elbo.at),
            })  # fmt: skip
    found.sort(key=lambda one: -abs(one["difference"]) / one["margin"])
    return list({one["dataset"]: one for one in reversed(found)}.values())[::-1][:most]


def rows(results: ResultsFolder) -> pd.DataFrame:
    """Mean and deviation of test metrics over repetitions: fits at the beta that validation selected by NLL (square
    loss: MSE), learning curves at each beta. `made` refers to the most frequent way in which they were made."""
    table, candidates = results.table, results.candidates
    fits = table[(table["role"] == "fit") & (table["status"] != "incomplete")]
    fits = fits.sort_values("selected_by", ascending=False).drop_duplicates("group").assign(curve=np.nan)
    curves = candidates[candidates["role"] == "curve"].drop_duplicates(["key", "method"])
    both = pd.concat([fits, curves.assign(curve=curves["beta"])], ignore_index=True)
    metrics = [f"test_{name}" for name in METRICS if f"test_{name}" in both and not name.startswith("width")]
    ways = made(results)
    numbers = both[MADE].merge(ways.reset_index(), on=MADE, how="left")["index"]
    both = both.assign(made=numbers.to_numpy(), lost=both["status"].ne("done"), converged=both["converged"].eq(True))
    groups = both.groupby([*LINE, "curve"], dropna=False, sort=False, observed=True)
    found = groups[metrics].mean().add_suffix("_mean").join(groups[metrics].std().add_suffix("_std"))
    found = found.join(groups.agg(
        beta=("beta", "median"), repetitions=("seed", "nunique"), lost=("lost", "sum"), converged=("converged", "mean"),
        seconds=("seconds", "sum"), made=("made", "first"),
    )).reset_index()  # fmt: skip
    found = as_text(found)
    found["method"] = found["method"].map(method_label)
    found["estimator"] = [estimator_label(*pair) for pair in zip(found["estimator"], found["samples"], strict=True)]
    found["dataset"] = [labelled(*pair) for pair in zip(found["dataset"], found["stands_for"], strict=True)]
    return found.sort_values(["dataset", "parameterisation", "n", "method", "estimator", "beta"])
