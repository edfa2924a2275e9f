"""What the fuzz suite spoils, and which commands then read it. A target takes chance and a results folder."""

import contextlib
import hashlib
import io
import json
import logging
import random
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

import msgspec
import numpy as np

from dlmexp.cli import main
from dlmexp.data.parsers.registry import parse
from dlmexp.data.raw_files import download
from dlmexp.data.schema import Column, Schema
from dlmexp.data.spec import DatasetSpec, Task
from dlmexp.errors import UserError
from dlmexp.models.prediction_file import open_rows
from dlmexp.reading.arrays import read_npz, read_variables
from dlmexp.reading.files import open_raw
from dlmexp.records.manifest import manifest
from dlmexp.records.record import sealed
from dlmexp.records.results import collect_packed
from dlmexp.records.store import Store
from tests.support import made_up, mutations, overrides
from tests.support.cells import candidates

COMPRESSIONS: tuple[Literal["snappy", "zstd"] | None, ...] = ("snappy", "zstd", None)
CODES = (0, 1, 2, 3, 130)
READERS = (
    ["status", "--failed", "--missing"], ["status", "--json"], ["collect"],
    ["collect", "--pack", "out/records.parquet"],
    ["claims"], ["claims", "--json"], ["plot", "--list"],
)  # fmt: skip
SLOW_READERS = (["plot", "default"], ["report", "--out", "report.html"])
TWO_COLUMNS = Schema("z", (Column("y"), Column("x", "category", ("a", "b"))))
SOUND = made_up.cell(seed=1)
OTHER = made_up.cell(seed=2)
RUN = [
    "run", "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3",
    "sizes=[10]", "seeds=[0]", "method=[elbo]", "beta=list", "beta.values=[1]", "device=cpu",
    "training.binary.max_iterations=2", "checkpoint_seconds=1e-9",
]  # fmt: skip


def main_ends_well(words: list[str], folder: Path) -> None:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = main([*words, *([f"results={folder}"] if words[0] == "run" else ["--results", str(folder)])])
    assert code in CODES, f"exit code {code}"


def read(chance: random.Random, folder: Path) -> None:
    """A command that reads records, mostly a quick one."""
    main_ends_well(chance.choice(SLOW_READERS if chance.random() < 0.03 else READERS), folder)


def record_values(chance: random.Random) -> dict[str, Any]:
    made = made_up.plausible(made_up.cell(seed=2, evaluate=chance.choice(["end", "10"])))[0]
    if chance.random() < 0.2:
        made = made_up.failed(OTHER)
    return {"format": 2} | msgspec.to_builtins(made)


def target_record(chance: random.Random, folder: Path) -> None:
    """A record with a fitting seal."""
    text = sealed(mutations.as_json(mutations.spoiled(record_values(chance), chance)))
    name = f"{OTHER.key}{chance.choice(['.json', '.json', '.failed.json'])}"
    (folder / "records" / "banana" / name).write_bytes(text + b"\n")
    read(chance, folder)


def target_arrays(chance: random.Random, folder: Path) -> None:
    """Arrays that a record seals, and that figures read."""
    made, arrays = made_up.plausible(made_up.cell(seed=2, evaluate="10", objective="log_dlm", beta=0.1))
    content = mutations.npz(arrays, chance)
    values = msgspec.to_builtins(made) | {"format": 3, "arrays": hashlib.sha256(content).hexdigest()}
    place = folder / "records" / "banana"
    (place / f"{made.key}-{values['arrays'][:8]}.npz").write_bytes(content)
    (place / f"{made.key}.json").write_bytes(sealed(mutations.as_json(values)) + b"\n")
    store = Store(folder)
    for record in store.own():
        store.arrays(record.cell.dataset, record.key, record.arrays)
    read(chance, folder)


def target_pack(chance: random.Random, folder: Path) -> None:
    """Packed records, spoiled anywhere: in their pages, their footer, or what was asked for."""
    source = folder / "source"
    made_up.fill(source, [SOUND, OTHER])
    collect_packed(str(source), str(folder / "packed.parquet"))
    shutil.rmtree(source)
    content = (folder / "packed.parquet").read_bytes()
    if chance.random() < 0.3:
        content = content[: chance.randrange(len(content))]
    (folder / "packed.parquet").write_bytes(mutations.flipped(content, chance))
    read(chance, folder)


def target_manifest(chance: random.Random, folder: Path) -> None:
    asked = msgspec.to_builtins(manifest("asked", [candidates("elbo", [SOUND, OTHER])]))
    text = mutations.as_json(mutations.spoiled(asked, chance))
    place = folder / "asked" / "cells" / f"{hashlib.sha256(text).hexdigest()[:16]}.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(text)
    read(chance, folder)


def target_processes(chance: random.Random, folder: Path) -> None:
    """Files of processes with their leases, and of jobs on a cluster."""
    about = {"host": "h", "pid": 1, "keys": [OTHER.key], "job": None, "machine": "m", "name": "h-1-1"}
    job = {"id": "7", "cluster": "c", "user": "u", "time": 1.0, "overrides": "a=b", "keys": [OTHER.key]}
    outcome = {"host": "h", "code": 1, "reason": "r"}
    folders = folder / "running", folder / "multirun" / "m" / "jobs" / "7"
    for place in folders:
        place.mkdir(parents=True)
    files = (
        (folders[0] / "h-1-1.json", about),
        (folders[0] / "1.lease", about),
        (folders[1] / "submitted.json", job),
        (folders[1] / "outcome.json", outcome),
    )
    victim = chance.randrange(len(files))
    for k, (path, value) in enumerate(files):
        path.write_bytes(mutations.as_json(mutations.spoiled(value, chance) if k == victim else value))
    main_ends_well(["status", "--json"], folder)


def target_checkpoint(chance: random.Random, folder: Path) -> None:
    """A checkpoint of the very batch that is to be trained, spoiled; training goes on from it or begins again."""
    from dlmexp.running import checkpoint

    path, arrays = first_checkpoint()
    about = json.loads(arrays["about"].tobytes())
    rest = {name: array for name, array in arrays.items() if name != "about"}
    kind = chance.random()
    if kind < 0.5:
        about = mutations.spoiled(about, chance)
    elif kind < 0.7:
        name = chance.choice(list(rest))
        rest[name] = chance.choice(
            [np.asarray(7.0), rest[name][..., :0] if rest[name].ndim else np.asarray(-1), rest[name] - 9]
        )
    rest["about"] = np.frombuffer(mutations.as_json(about), dtype=np.uint8)
    place = folder / "checkpoints" / path
    place.parent.mkdir()
    if kind < 0.7:
        np.savez(place, **rest)  # pyright: ignore[reportArgumentType]
    else:
        place.write_bytes(mutations.npz(rest, chance))
    main_ends_well(RUN, folder)
    store = Store(folder)
    assert sum(record.cell.dataset == "ringnorm_drawn" for record in store.own()) == 1
    assert not checkpoint.find(store)


_CHECKPOINTS: dict[str, tuple[str, dict[str, np.ndarray]]] = {}


def first_checkpoint() -> tuple[str, dict[str, np.ndarray]]:
    """Name and arrays of the checkpoint after the first iteration."""
    if not _CHECKPOINTS:
        from dlmexp.running import checkpoint

        plain, seen = checkpoint.write_atomically, []
        checkpoint.write_atomically = lambda path, content: (seen.append((path.name, content)), plain(path, content))[1]
        try:
            with tempfile.TemporaryDirectory() as folder:
                main_ends_well(RUN, Path(folder))
        finally:
            checkpoint.write_atomically = plain
        name, content = seen[1]
        with np.load(io.BytesIO(content)) as arrays:
            _CHECKPOINTS["one"] = name, dict(arrays)
    return _CHECKPOINTS["one"]


def target_mat(chance: random.Random, folder: Path) -> None:
    path = folder.parent / "a.mat"
    path.write_bytes(mutations.mat(chance))
    with contextlib.suppress(UserError):
        read_variables(path, "X")


def _table(path: Path, chance: random.Random) -> None:
    task: Task = chance.choice(get_args(Task))
    spec = DatasetSpec("csv", "table", task, "regression", options={"target": chance.choice(["y", "x", "y", "nope"])})
    with contextlib.suppress(UserError):
        parse(spec, {path.name: path})
    with contextlib.suppress(UserError):  # in pieces too, as rows to predict on are read
        for piece in open_rows(path, TWO_COLUMNS, only=True):
            TWO_COLUMNS.encode(piece, 1, path.name)


def target_npz(chance: random.Random, folder: Path) -> None:
    path = folder.parent / "a.npz"
    path.write_bytes(mutations.npz(mutations.odd_arrays(chance), chance))
    with contextlib.suppress(UserError):
        read_npz(path)


def target_csv(chance: random.Random, folder: Path) -> None:
    path = folder.parent / "a.csv"
    path.write_bytes(mutations.csv(chance))
    _table(path, chance)


def _frame(chance: random.Random) -> Any:
    import pandas as pd

    rows = chance.choice([0, 3, 30])
    columns: dict[str, Any] = {"y": np.arange(rows), "x": chance.choice([["a"] * rows, [None] * rows, np.ones(rows)])}
    return pd.DataFrame(columns)


def target_parquet(chance: random.Random, folder: Path) -> None:
    path, buffer = folder.parent / "a.parquet", io.BytesIO()
    _frame(chance).to_parquet(buffer, compression=chance.choice(COMPRESSIONS))
    path.write_bytes(mutations.flipped(buffer.getvalue(), chance))
    _table(path, chance)


def target_archive(chance: random.Random, folder: Path) -> None:
    """Zip, tgz and bz2 files, as datasets are published."""
    import bz2
    import gzip

    text = b"1,2,3\n" * chance.choice([0, 1, 1000])
    kind = chance.choice(["zip", "tgz", "tar", "bz2"])
    if kind == "zip":
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", chance.choice([0, 8, 12, 14])) as archive:
            archive.writestr(chance.choice(["f.txt", "a/f.txt", "../f.txt", "/f.txt", "é"]), text)
        data = buffer.getvalue()
    elif kind == "bz2":
        data = bz2.compress(text)
    else:
        data = mutations.tar([("a/f.txt", text), ("b", b"")], chance)
        data = gzip.compress(data) if kind == "tgz" else data
    path = folder.parent / f"a.{kind}"
    path.write_bytes(mutations.flipped(data, chance) if chance.random() < 0.7 else data)
    with contextlib.suppress(UserError), open_raw(path, None if kind == "bz2" else "f.txt", 1 << 20) as stream:
        stream.read()


def target_http(chance: random.Random, folder: Path) -> None:
    """A server that says anything."""
    from tests.support.http_server import answering

    body = b"x" * chance.choice([0, 10, 3000])
    length = chance.choice([str(len(body)), str(len(body)), "²", "-1", "9" * 5000, "", "5", str(10**12), "1e3", "٣"])
    places = ["/other", "file:///etc/passwd", "http://[", "//", "http://127.0.0.1:1/", "\x01", "ftp://127.0.0.1:1/x"]
    headers = [
        f"Content-Length: {length}", f"ETag: {chance.choice(['x', 'W/x', chr(233) * 3, 'a' * 70000])}",
        "Transfer-Encoding: chunked", f"Content-Range: {chance.choice(['bytes 5-9/10', 'bytes */5', 'x', 'bytes 5-'])}",
        f"Location: {chance.choice(places)}", "Content-Encoding: gzip", "Last-Modified: never", "", ": x",
    ]  # fmt: skip
    status = chance.choice(
        ["200 OK", "200 OK", "206 Partial", "416 No", "302 There", "404 None", "503 Later", "999 ?", "x", "100 Go"]
    )
    answer = "\r\n".join([f"HTTP/1.1 {status}", *chance.sample(headers, k=chance.randrange(1, 5)), "", ""])
    data = answer.encode("utf-8") + body
    data = mutations.flipped(data, chance) if chance.random() < 0.3 else data
    with answering(data) as url, contextlib.suppress(UserError), quiet(), mock.patch("time.sleep"):
        download(url, folder.parent / "part", lambda done, total: None, "0" * 64 if chance.random() < 0.2 else None)


def target_overrides(chance: random.Random, folder: Path) -> None:
    """What may be typed after `dlmexp run`."""
    typed = overrides.groups if chance.random() < 0.1 else overrides.settings
    words = [*overrides.BASE, *next(typed(chance, 1)), f"results={folder}"]
    problem = overrides.wrong(words)
    assert problem is None, f"{words}: {problem}"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


TARGETS: dict[str, Callable[[random.Random, Path], None]] = {
    name.removeprefix("target_"): function for name, function in globals().copy().items() if name.startswith("target_")
}
DIRECT = {"mat", "npz", "csv", "parquet", "archive", "http"}  # no command, but what all commands read such files with
IN_CI = {
    "record": 30, "arrays": 20, "pack": 30, "manifest": 20, "processes": 40, "checkpoint": 8, "mat": 15, "npz": 400,
    "csv": 200, "parquet": 100, "archive": 300, "http": 150, "overrides": 15,
}  # fmt: skip
OWN = {
    "a.mat", "a.npz", "a.csv", "a.parquet", "a.zip", "a.tgz", "a.tar", "a.bz2", "part",
    "out", "report.html",
}  # fmt: skip
