"""The fuzz suite: spoiled files of every kind, and settings of every kind, against the commands
that read them.

A case is a target and a seed. It passes if the command ends with exit code 0, 1, 2, 3 or 130 and
without an exception, memory stays under a bound, nothing outside the results folder has changed,
and sound records are as they were. A target takes chance and a results folder: a copy of `sweep()`,
in which the record of seed 0 stays sound. Tests run a fixed number of cases; this runs any number,
with other seeds:
    python -m tests.test_fuzz MINUTES [TARGET...]
"""

import contextlib
import hashlib
import io
import json
import logging
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, get_args
from unittest import mock

import numpy as np
import pytest
import torch

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.common.reading.files import open_raw, read_npz
from dlmexp.common.reading.matlab import read_variables
from dlmexp.data.config import DatasetConfig
from dlmexp.data.dataset import Task, parse
from dlmexp.data.schema import Column, Schema
from dlmexp.experiment.models.predict_file import open_rows
from dlmexp.experiment.records.record import with_checksum
from dlmexp.experiment.records.results import collect_packed
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running import checkpoints
from tests.support import mutations

pytestmark = [pytest.mark.slow, pytest.mark.processes]
CODES = (0, 1, 2, 3, 130)
READERS = (
    ["status", "--failed", "--missing"],
    ["status", "--json"],
    ["collect"],
    ["collect", "--pack", "out/records.parquet"],
    ["claims"],
    ["claims", "--json"],
)
SLOW_READERS = (["plot", "--list"], ["plot", "default"], ["report", "--out", "report.html"])
TWO_COLUMNS = Schema("z", (Column("y"), Column("x", "category", ("a", "b"))))
RUN = [
    "run",
    "dataset=ringnorm_drawn",
    "dataset.ringnorm_drawn.options.rows=60",
    "dataset.ringnorm_drawn.M=3",
    "sizes=[10]",
    "seeds=[0,1]",
    "method=[elbo]",
    "beta=list",
    "beta.values=[1]",
    "device=cpu",
    "evaluate=1",
    "batch_cells=1",
    "training.binary.max_iterations=2",
    "checkpoint_seconds=1e-9",
]
MEMORY = 3 << 30  # bytes of address space on top of what the process has when it starts
AT_ONCE = 25  # cases in one process


def main_ends_well(words: list[str], folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main(
            [*words, *([f"results={folder}"] if words[0] == "run" else ["--results", str(folder)])]
        )
    assert code in CODES, f"exit code {code}"


class Sweep(NamedTuple):
    """Two learning curves, their pack, and the checkpoint of the second after its first
    iteration."""

    folder: Path
    packed: bytes
    checkpoint: tuple[str, bytes]
    keys: list[str]  # by seed


@cache
def sweep() -> Sweep:
    folder = Path(tempfile.mkdtemp()) / "results"
    with mock.patch.object(
        checkpoints, "write_atomically", wraps=checkpoints.write_atomically
    ) as write:
        main_ends_well(RUN, folder)
    path, state = write.call_args.args
    collect_packed(str(folder), str(folder.with_name("packed.parquet")))
    keys = [
        record.key
        for record in sorted(Store(folder).own_records(), key=lambda record: record.cell.seed)
    ]
    return Sweep(folder, folder.with_name("packed.parquet").read_bytes(), (path.name, state), keys)


def sound_record(path: Path) -> bool:
    return path.name == f"{sweep().keys[0]}.json"


def other_record(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The record of seed 1, without its seal."""
    (path,) = folder.glob(f"records/*/{sweep().keys[1]}.json")
    values = json.loads(path.read_text())
    del values["sha256"]
    return path, values


def read(chance: random.Random, folder: Path) -> None:
    """A command that reads records, mostly a quick one."""
    main_ends_well(chance.choice(SLOW_READERS if chance.random() < 0.03 else READERS), folder)


def target_record(chance: random.Random, folder: Path) -> None:
    """A record with a fitting seal."""
    path, values = other_record(folder)
    if chance.random() < 0.2:
        values |= {
            "status": "failed",
            "result": {"reason": "the objective is NaN", "iterations": 17},
        }
    path.unlink()
    path = path.with_suffix(chance.choice([".json", ".json", ".failed.json"]))
    path.write_bytes(with_checksum(mutations.as_json(mutations.spoiled(values, chance))) + b"\n")
    read(chance, folder)


def target_arrays(chance: random.Random, folder: Path) -> None:
    """Arrays that a record seals, and that figures read."""
    path, values = other_record(folder)
    store = Store(folder)
    content = mutations.npz(store.arrays(values["key"]), chance)
    values["arrays"] = hashlib.sha256(content).hexdigest()
    path.with_name(f"{values['key']}-{values['arrays'][:8]}.npz").write_bytes(content)
    path.write_bytes(with_checksum(mutations.as_json(values)) + b"\n")
    for record in store.own_records():
        store.arrays(record.key)
    read(chance, folder)


def target_pack(chance: random.Random, folder: Path) -> None:
    """Packed records, spoiled anywhere: in their pages, their footer, or what was asked for."""
    content = sweep().packed
    if chance.random() < 0.3:
        content = content[: chance.randrange(len(content))]
    (folder / "packed.parquet").write_bytes(mutations.flipped(content, chance))
    read(chance, folder)


def target_manifest(chance: random.Random, folder: Path) -> None:
    (path,) = folder.glob("*/cells/*.json")
    text = mutations.as_json(mutations.spoiled(json.loads(path.read_text()), chance))
    path.with_name(f"{hashlib.sha256(text).hexdigest()[:16]}.json").write_bytes(text)
    read(chance, folder)


def target_processes(chance: random.Random, folder: Path) -> None:
    """Files of processes, and of jobs on a cluster."""
    keys = sweep().keys
    about = {"host": "h", "pid": 1, "keys": keys, "job": None, "machine": "m"}
    job = {"id": "7", "user": "u", "time": 1.0, "overrides": "a=b", "keys": keys}
    files = {"running/h-1-1.json": about, "multirun/m/jobs/7/submitted.json": job}
    victim = chance.choice(list(files))
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(
            mutations.as_json(mutations.spoiled(value, chance) if name == victim else value)
        )
    main_ends_well(["status", "--json"], folder)


def target_checkpoint(chance: random.Random, folder: Path) -> None:
    """A checkpoint of the very batch that is to be trained, spoiled; training goes on from it or
    begins again."""
    other_record(folder)[0].unlink()
    name, content = sweep().checkpoint
    with np.load(io.BytesIO(content)) as file:
        arrays = dict(file)
    kind, about = chance.random(), arrays["about"].tobytes()
    if kind < 0.5:
        about = mutations.as_json(mutations.spoiled(json.loads(about), chance))
        arrays["about"] = np.frombuffer(about, dtype=np.uint8)
    elif kind < 0.7:
        victim = chance.choice([array for array in arrays if array != "about"])
        plain = arrays[victim]
        short = plain[..., :0] if plain.ndim else np.asarray(-1)
        arrays[victim] = chance.choice([np.asarray(7.0), short, plain - 9])
    place = folder / "checkpoints" / name
    place.parent.mkdir(exist_ok=True)
    if kind < 0.7:
        np.savez(place, **arrays)  # pyright: ignore[reportArgumentType]
    else:
        place.write_bytes(mutations.npz(arrays, chance))
    main_ends_well(RUN, folder)
    assert sorted(record.key for record in Store(folder).own_records()) == sorted(sweep().keys)
    assert not checkpoints.find_checkpoints(Store(folder))


def target_mat(chance: random.Random, folder: Path) -> None:
    (folder / "a.mat").write_bytes(mutations.mat(chance))
    with contextlib.suppress(UserError):
        read_variables(folder / "a.mat", "X")


def target_npz(chance: random.Random, folder: Path) -> None:
    (folder / "a.npz").write_bytes(mutations.npz(mutations.odd_arrays(chance), chance))
    with contextlib.suppress(UserError):
        read_npz(folder / "a.npz")


def target_csv(
    chance: random.Random, folder: Path, make: Callable = mutations.csv, name: str = "a.csv"
) -> None:
    """A table to train on; and, in pieces, to predict on."""
    path, options = folder / name, {"target": chance.choice(["y", "x", "y", "nope"])}
    path.write_bytes(make(chance))
    spec = DatasetConfig(
        "csv", "table", chance.choice(get_args(Task)), split="regression", options=options
    )
    with contextlib.suppress(UserError):
        parse(spec, {path.name: path})
    with contextlib.suppress(UserError):
        for piece in open_rows(path, TWO_COLUMNS):
            TWO_COLUMNS.encode(piece, 1, path.name)


def target_parquet(chance: random.Random, folder: Path) -> None:
    target_csv(chance, folder, mutations.parquet, "a.parquet")


def target_archive(chance: random.Random, folder: Path) -> None:
    """Zip, tgz and bz2 files, as datasets are published."""
    kind = chance.choice(["zip", "tgz", "bz2"])
    path = folder / f"a.{kind}"
    path.write_bytes(mutations.archive(kind, chance))
    with (
        contextlib.suppress(UserError),
        open_raw(path, None if kind == "bz2" else "f.txt", 1 << 20) as stream,
    ):
        stream.read()


def target_overrides(chance: random.Random, folder: Path) -> None:
    """What may be typed after `dlmexp run`: a plan, or one sentence, and nothing is written."""
    words = [*mutations.BASE, *mutations.typed(chance), f"results={folder}"]
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        code = main(["run", *words, "plan=true"])
    text = said.getvalue()
    one_sentence = text.startswith("dlmexp: ") and text.count("\n") == 1 and len(text) <= 1500
    assert code == 0 or (code == 2 and one_sentence), f"{words}: {code} {text}"
    assert not list(folder.iterdir())


TARGETS: dict[str, Callable[[random.Random, Path], None]] = {
    name.removeprefix("target_"): function
    for name, function in globals().copy().items()
    if name.startswith("target_")
}
DIRECT = {"mat", "npz", "csv", "parquet", "archive", "overrides"}  # they read no results
IN_CI = {
    "record": 30,
    "arrays": 20,
    "pack": 30,
    "manifest": 20,
    "processes": 40,
    "checkpoint": 8,
    "mat": 10,
    "npz": 400,
    "csv": 200,
    "parquet": 100,
    "archive": 300,
    "overrides": 35,
}
OWN = {"results", "out", "report.html"}  # what cases may write


def case(target: str, seed: int) -> str | None:
    """Run one case in a folder of its own; a text that says what went wrong, or None."""
    with (
        tempfile.TemporaryDirectory() as top,
        warnings.catch_warnings(action="ignore"),
    ):  # a warning is no traceback
        os.chdir(top)
        folder, results = Path(top), Path(top) / "results"
        (folder / "outside").write_text("mine")
        results.mkdir() if target in DIRECT else shutil.copytree(sweep().folder, results)
        before = _snapshot(folder)
        try:
            TARGETS[target](random.Random(f"{target} {seed}"), results)
            assert _snapshot(folder) == before, (
                f"what should be as it was: {_snapshot(folder) ^ before}"
            )
        except Exception:
            return f"{target} {seed}:\n{traceback.format_exc()}"
        finally:
            os.chdir("/")
    return None


def _snapshot(folder: Path) -> set[tuple[str, bytes]]:
    """All files but those that the case writes; of the results only the sound record."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    counted = [
        path for path in files if path.relative_to(folder).parts[0] not in OWN or sound_record(path)
    ]
    return {(str(path), path.read_bytes()) for path in counted}


def cases(target: str, seeds: range) -> bool:
    """Run cases in a process of their own, with a bound on memory, which prints what went wrong;
    whether all passed. If it dies, that is a failure."""
    process = get_context("fork").Process(target=_run_cases, args=(target, seeds))
    process.start()
    process.join()
    return process.exitcode == 0


def _run_cases(target: str, seeds: range) -> None:
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    logging.disable(logging.WARNING)
    os.environ["OMP_NUM_THREADS"] = "1"  # threads of OpenMP wait for ever in a forked process
    torch.set_num_threads(1)
    wrong = [problem for seed in seeds if (problem := case(target, seed))]
    print(*wrong, sep="\n", flush=True)
    sys.exit(bool(wrong))


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    warm_up()


def warm_up() -> None:
    """Import what the commands import, once, before processes are forked."""

    sweep()


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_spoiled_ends_in_a_sentence(target):
    assert cases(target, range(IN_CI[target]))


if __name__ == "__main__":
    warm_up()
    first = int(os.environ.get("SEED", time.time() % 1e6))
    end, counts, failed = time.monotonic() + 60 * float(sys.argv[1]), Counter[str](), Counter[str]()
    for seed, target in (
        (seed, target) for seed in count(first, AT_ONCE) for target in sys.argv[2:] or TARGETS
    ):
        counts[target] += AT_ONCE
        failed[target] += not cases(target, range(seed, seed + AT_ONCE))
        if time.monotonic() >= end:
            break
    print(
        f"{counts.total()} cases from seed {first}: {dict(counts)}; "
        f"not passed in {failed.total()} processes"
    )
    sys.exit(bool(failed.total()))
