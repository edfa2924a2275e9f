"""Time to parse the largest datasets the first time, and to load them from the cache, on synthetic full-size files."""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dlmexp.data.dataset import load
from dlmexp.data.parsers.airline import FEATURES
from dlmexp.data.spec import DatasetSpec, read_spec

FIRST_SECONDS, FIRST_GIB, SECOND_SECONDS = 60.0, 3.0, 1.0
FULL_SIZE = {"airline": 2_055_733, "song": 515_345, "data_expo": 7_009_728}


def main(argv: Sequence[str] | None = None) -> int:
    """Prints one line per file; exit code 1 if a limit is not met (first load: 60 s, 3 GiB; second: 1 s)."""
    parser = argparse.ArgumentParser(prog="dlmexp benchmark data", description=__doc__)
    parser.add_argument(
        "cases", nargs="*", metavar="CASE", help=f"what to measure: {', '.join(CASES)} (default: airline song)"
    )
    parser.add_argument("--rows", type=int, help="number of rows, for a quick test (default: full size)")
    parser.add_argument("--folder", type=Path, help="folder for the files (default: that for temporary files)")
    parser.add_argument("--load", nargs=2, metavar=("CASE", "ROOT"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.load:
        print(json.dumps(_timed_load(_spec(args.load[0], args.rows), Path(args.load[1]))))
        return 0
    for case in args.cases:
        if case not in CASES:
            parser.error(f"unknown case '{case}': {', '.join(CASES)}")
    print(f"{'case':10} {'file':>9} {'rows':>8} {'first parse':>12} {'peak memory':>12} {'second load':>12}  limits")
    met = [_measure(case, args.rows, args.folder) for case in args.cases or ("airline", "song")]
    return 0 if all(met) else 1


def _measure(case: str, rows: int | None, folder: Path | None) -> bool:
    with tempfile.TemporaryDirectory(dir=folder) as root:
        CASES[case](Path(root), rows or FULL_SIZE[case])
        size = sum(path.stat().st_size for path in Path(root).rglob("*") if path.is_file())
        first, second = _in_fresh_process(case, root, rows), _in_fresh_process(case, root, rows)
    met = first["seconds"] < FIRST_SECONDS and first["gib"] < FIRST_GIB and second["seconds"] < SECOND_SECONDS
    print(
        f"{case:10} {size / 2**20:6.0f} MB {first['rows']:8d} {first['seconds']:10.2f} s {first['gib']:8.2f} GiB "
        f"{second['seconds']:10.3f} s  {'met' if met else 'NOT MET'}",
        flush=True,
    )
    return met


def _in_fresh_process(case: str, root: str, rows: int | None) -> dict:
    """Seconds, peak memory and rows of a load in a new process, so that its peak memory is that of the load."""
    command = [sys.executable, "-m", "dlmexp.benchmark.data", "--load", case, root]
    output = subprocess.run([*command, *(["--rows", str(rows)] if rows else [])], check=True, capture_output=True)
    return json.loads(output.stdout)


def _timed_load(spec: DatasetSpec, root: Path) -> dict:
    start = time.perf_counter()
    dataset = load(spec, root)
    dataset.X.sum()  # reads every value, since the arrays are memory-mapped
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "gib": peak, "rows": len(dataset.y)}


def _spec(case: str, rows: int | None) -> DatasetSpec:
    spec = read_spec("song" if case == "song" else "airline")
    # The preprocessing drops some of the synthetic flights, so their number is not known beforehand.
    return replace(spec, rows=None if case == "data_expo" else rows or spec.rows)


def _synthetic(name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
    dataset = load(replace(read_spec(name), rows=rows, options={"rows": rows, "seed": 0}), "")
    return dataset.X, dataset.y


def _write_airline(root: Path, rows: int) -> None:
    """`airline.csv`: the eight features and ArrDelay as whole numbers."""
    X, y = _synthetic("airline_like", rows)
    columns = {name: X[:, k].astype(np.int64) for k, name in enumerate(FEATURES)}
    _write_csv(root / "airline" / "airline.csv", columns | {"ArrDelay": np.where(y > 0, 12, -7)})


def _write_song(root: Path, rows: int) -> None:
    """`YearPredictionMSD.txt`: the year, then 90 numbers with 5 decimals, no header."""
    X, y = _synthetic("song_like", rows)
    columns = {"year": y.astype(np.int64)} | {f"x{k}": np.round(X[:, k], 5) for k in range(X.shape[1])}
    _write_csv(root / "song" / "YearPredictionMSD.txt", columns, header=False)


def _write_data_expo(root: Path, rows: int) -> None:
    """`2008.csv` (a year of flights, with the columns that the parser reads and some others) and `plane-data.csv`."""
    X, y = _synthetic("airline_like", rows)
    rng = np.random.default_rng(0)
    tails = np.array([f"N{k:05d}" for k in range(5000)])
    columns = {name: X[:, k].astype(np.int64) for k, name in enumerate(FEATURES[:-1])}
    columns |= {
        "Month": np.sort(rng.integers(1, 13, len(y))),
        "ArrDelay": np.where(y > 0, 12, -7),
        "Cancelled": (rng.random(len(y)) < 0.02).astype(np.int64),
        "Diverted": (rng.random(len(y)) < 0.002).astype(np.int64),
        "TailNum": tails[rng.integers(0, len(tails), len(y))],
        "UniqueCarrier": np.full(len(y), "WN"),
        "FlightNum": rng.integers(1, 8000, len(y)),
        "Year": np.full(len(y), 2008),
    }
    _write_csv(root / "airline" / "2008.csv", columns)
    built = np.where(np.arange(len(tails)) % 9 == 0, "None", (1980 + np.arange(len(tails)) % 28).astype(str))
    _write_csv(root / "airline" / "plane-data.csv", {"tailnum": tails, "year": built})


def _write_csv(path: Path, columns: dict[str, np.ndarray], header: bool = True) -> None:
    import pyarrow as pa
    from pyarrow import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    options = csv.WriteOptions(include_header=header, quoting_style="none")
    csv.write_csv(pa.table({name: pa.array(values) for name, values in columns.items()}), path, options)


CASES: dict[str, Callable[[Path, int], None]] = {
    "airline": _write_airline,
    "song": _write_song,
    "data_expo": _write_data_expo,
}

if __name__ == "__main__":
    sys.exit(main())
