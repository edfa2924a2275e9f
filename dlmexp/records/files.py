"""Files that are complete or absent, and contents with a checksum: atomic writes, sealed JSON, arrays as bytes."""

import contextlib
import hashlib
import io
import os
from pathlib import Path

import numpy as np

from dlmexp.atomic import TEMPORARY, replacing
from dlmexp.records.owner import owner

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)  # no file of that name
SEAL = b',"sha256":"%s"'


def sealed(content: bytes) -> bytes:
    """A JSON object with its own checksum as the last field: the SHA-256 of the object as it was without that field."""
    return content[:-1] + SEAL % hashlib.sha256(content).hexdigest().encode() + b"}"


def is_sealed(content: bytes, digest: str) -> bool:
    """Whether `digest`, found in the object, is its checksum: not a letter of it was changed."""
    body = content.replace(SEAL % digest.encode(), b"", 1)
    return hashlib.sha256(body).hexdigest() == digest


def write_atomically(path: Path, content: bytes, durable: bool = True) -> None:
    """Under a temporary name in the same folder, flushed to disk, then renamed: never half a file under `path`. A file
    that is not `durable` may be lost, or torn, where the power fails: another one has its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, owner()) as temporary, open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    if not durable:
        return
    with contextlib.suppress(OSError):  # some network disks refuse to sync a folder
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def writer_of(path: Path) -> str | None:
    """The process that wrote a temporary file of `write_atomically`, as `owner()` names it; None for other files."""
    parts = path.name.rsplit(".", 3)
    return parts[1] if path.name.startswith(".") and path.suffix == TEMPORARY and len(parts) == 4 else None


def pack_arrays(arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of a compressed `.npz`."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()
