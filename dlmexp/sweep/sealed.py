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
