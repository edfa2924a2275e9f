"""Files that are whole or not there, and contents that prove themselves: checksums, atomic writes, arrays as bytes."""

import contextlib
import hashlib
import io
import json
import os
import uuid
from pathlib import Path
from typing import Any

import numpy as np


def sealed(record: dict[str, Any]) -> str:
    """A record as one line of canonical JSON, with the SHA-256 of the line as it was without that field."""
    body = {name: value for name, value in record.items() if name != "sha256"}
    digest = hashlib.sha256(_canonical(body).encode()).hexdigest()
    return _canonical({**body, "sha256": digest})


def unsealed(line: str) -> dict[str, Any] | None:
    """The record of a `sealed` line, or None if a letter of it was changed."""
    try:
        record = json.loads(line)
        body = line.replace(f',"sha256":"{record["sha256"]}"', "", 1)
    except (ValueError, KeyError, TypeError):
        return None
    return record if hashlib.sha256(body.encode()).hexdigest() == record["sha256"] else None


def _canonical(record: dict[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


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
