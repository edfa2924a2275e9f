"""Records on disk: one small JSON per cell, arrays beside it, safe with many writers and torn files."""

import contextlib
import hashlib
import io
import json
import os
import time
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
FAILED = ".failed.json"


def checksum(record: dict[str, Any]) -> str:
    """SHA-256 of a record without its own `sha256` field, in canonical JSON."""
    body = {k: v for k, v in record.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    """Under a temporary name in the same folder, flushed to disk, then renamed: never half a file under `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    with contextlib.suppress(OSError):  # some network disks refuse to sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def pack(arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a compressed `.npz`."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def unpack(content: bytes) -> dict[str, np.ndarray]:
    """The arrays of `pack`; pickles are refused."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


class Store:
    """Records under `records/<dataset>/`: `<key>.json`, arrays beside it as `.npz`, failures as `.failed.json`."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root)
        self.records = self.root / "records"

    def path(self, dataset: str, key: str, suffix: str = ".json") -> Path:
        return self.records / dataset / f"{key}{suffix}"

    def write(self, record: dict[str, Any], arrays: dict[str, np.ndarray] | None = None) -> None:
        """Store a record; the JSON comes last and is what makes the cell done (or failed)."""
        record = {"format": FORMAT, **record}
        dataset, key, failed = record["cell"]["dataset"], record["key"], record["status"] == "failed"
        if arrays:
            content = pack(arrays)
            record["arrays"] = hashlib.sha256(content).hexdigest()
            write_atomically(self.path(dataset, key, ".npz"), content)
        record["sha256"] = checksum(record)
        text = json.dumps(record, sort_keys=True, allow_nan=True, indent=1) + "\n"
        write_atomically(self.path(dataset, key, FAILED if failed else ".json"), text.encode())
        if not failed and (old := self.path(dataset, key, FAILED)).exists():
            self.set_aside(old, "retried with success")

    def keys(self) -> tuple[set[str], set[str]]:
        """Keys of done and of failed cells, from file names alone (20 000 of them in a moment)."""
        done, failed = set[str](), set[str]()
        for folder in os.scandir(self.records) if self.records.is_dir() else ():
            for name in os.listdir(folder.path) if folder.is_dir() else ():
                if name.startswith("."):
                    continue
                if name.endswith(FAILED):
                    failed.add(name.removesuffix(FAILED))
                elif name.endswith(".json"):
                    done.add(name.removesuffix(".json"))
        return done, failed - done

    def read(self, path: Path) -> dict[str, Any] | None:
        """The record at `path`, or None after setting it aside because it is torn, foreign or edited."""
        try:
            record = json.loads(path.read_bytes())
            whole = (
                record["format"] == FORMAT
                and path.name.removesuffix(FAILED).removesuffix(".json") == record["key"]
                and checksum(record) == record["sha256"]
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, UnicodeDecodeError):
            whole, record = False, None
        if not whole:
            self.set_aside(path, "its checksum, name or format does not fit")
            return None
        return record

    def find(self, dataset: str, key: str) -> dict[str, Any] | None:
        """The record of a done cell, or None."""
        return self.read(self.path(dataset, key))

    def arrays(self, record: dict[str, Any]) -> dict[str, np.ndarray]:
        """The arrays beside a record; a file that does not match the record is set aside with it."""
        if "arrays" not in record:
            return {}
        path = self.path(record["cell"]["dataset"], record["key"], ".npz")
        try:
            content = path.read_bytes()
            if hashlib.sha256(content).hexdigest() == record["arrays"]:
                return unpack(content)
        except (FileNotFoundError, ValueError, zipfile.BadZipFile):
            pass
        suffix = FAILED if record["status"] == "failed" else ".json"
        for victim in (path, self.path(record["cell"]["dataset"], record["key"], suffix)):
            self.set_aside(victim, "the arrays do not match the record")
        return {}

    def all(self) -> Iterator[dict[str, Any]]:
        """Every sound record, done and failed, in a fixed order; a failed one only if the cell is not done."""
        for folder in sorted(self.records.iterdir()) if self.records.is_dir() else ():
            names = sorted(n for n in os.listdir(folder) if n.endswith(".json") and not n.startswith("."))
            present = set(names)
            for name in names:
                if name.endswith(FAILED) and name.replace(FAILED, ".json") in present:
                    continue
                if (record := self.read(folder / name)) is not None:
                    yield record

    def set_aside(self, path: Path, why: str) -> None:
        """Move a file out of the way, never delete it; `status` counts what lies in `set-aside`."""
        target = self.root / "set-aside" / f"{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:8]}-{path.name}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.replace(path, target)
            write_atomically(target.with_name(target.name + ".why"), f"{why}\n".encode())
