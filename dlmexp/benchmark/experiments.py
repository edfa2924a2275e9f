"""What every experiment would take on this machine with nothing else running: a table of estimates, made as `plan=true`
makes them. On a CPU with `workers=` as many as there are cores."""

import argparse
import tempfile
from collections.abc import Sequence

from dlmexp.benchmark.measure import print_device
from dlmexp.console import duration
from dlmexp.cores import cores
from dlmexp.errors import UserError

EXPERIMENTS = {
    "`default`": ("experiment=default",),
    "`class-log`, `class-err` (the same cells)": ("experiment=class-log",),
    "`count-log`, `count-mre` (the same cells)": ("experiment=count-log",),
    "`reg-log dataset=cadata`": ("experiment=reg-log", "dataset=cadata"),
    "`reg-log` on pol, cadata, sarcos": ("experiment=reg-log", "dataset=[pol,cadata,sarcos]"),
    "`reg-log` on song (`song_like`)": ("experiment=reg-log", "dataset=song_like"),
    "`reg-sq` on pol, cadata, sarcos": ("experiment=reg-sq", "dataset=[pol,cadata,sarcos]"),
    "`reg-learning` on pol, cadata, sarcos": ("experiment=reg-learning", "dataset=[pol,cadata,sarcos]"),
    "`count-learning`": ("experiment=count-learning",),
    "`count-smooth`": ("experiment=count-smooth",),
    "`airline` (`airline_like`)": ("experiment=airline", "dataset=airline_like"),
    "`airline dataset=flights`": ("experiment=airline", "dataset=flights"),
    "`airline-sampling-1 dataset=flights`": ("experiment=airline-sampling-1", "dataset=flights"),
    "`bias`": ("experiment=bias",),
    "`paper`": ("experiment=paper",),
}
PRESET = "preset=quick"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="dlmexp benchmark experiments", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WORD", help="only rows with one of these words in them")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is one")
    parser.add_argument("--no-presets", action="store_true", help="without the column of preset=quick")
    args = parser.parse_args(argv)
    rows = {name: words for name, words in EXPERIMENTS.items() if not args.names or any(n in name for n in args.names)}
    if not rows:
        raise UserError(f"'{' '.join(args.names)}': no experiment is named so; `--help` says what to give")
    device = print_device(args.device)
    workers = cores() if device == "cpu" else 1
    where = f"{workers} cores" if device == "cpu" else "one GPU"
    presets = [()] if args.no_presets else [(), (PRESET,)]
    heads = ["experiment", "cells", where, *([] if args.no_presets else [f"`{PRESET}`, {where}"])]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name, words in rows.items():
        found = [estimated((*words, *preset), device, workers) for preset in presets]
        print(f"| {name} | {found[0][0]} | {' | '.join(said for _, said in found)} |", flush=True)
    return 0


def estimated(words: Sequence[str], device: str, workers: int) -> tuple[str, str]:
    """Cells and time of a run from an empty folder, without the load of the moment; dashes if there is no data."""
    from dlmexp.plan.compose import compose
    from dlmexp.plan.shorthand import spelled_out
    from dlmexp.records.store import Store
    from dlmexp.running.device import device_and_free_memory
    from dlmexp.running.duration import Prediction
    from dlmexp.running.sweep import plan_sweep, prepare_sweep
    from dlmexp.running.threads import some_threads

    with tempfile.TemporaryDirectory() as folder:
        cfg = compose(spelled_out([*words, "stand_ins=true", f"device={device}", f"results={folder}/results"]))
        try:
            sweep = prepare_sweep(cfg)
        except UserError:  # no data and nothing that could stand in
            return "-", "-"
        store = Store(cfg.results, read_only=True)
        plan = plan_sweep(sweep, store, *device_and_free_memory(cfg))
        with some_threads(1 if device == "cpu" else cores()):
            found = Prediction(plan, sweep, store, device, workers)
    seconds = found.estimate.likely / found.measured.load
    return str(plan.pending), "seconds" if seconds < 10 else duration(seconds)


if __name__ == "__main__":
    raise SystemExit(main())
