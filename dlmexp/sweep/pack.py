"""Many records as one file, to be carried from machine to machine or kept in a repository.

A pack in a results folder (`records*.tar.xz`) is a read-only layer under the folder's own records: whoever reads
records sees both, and a run goes on from both.
"""

import hashlib
import io
import lzma
import shlex
import tarfile
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dlmexp.errors import UserError
from dlmexp.sweep.provenance import portable
from dlmexp.sweep.sealed import sealed, unpack, unsealed, write_atomically

PATTERN = "records*.tar.xz"
LINES = "records.jsonl"
HYPERPARAMETERS = ("lengthscale", "outputscale", "noise", "mean", "Z")  # what an ELBO fit leaves for fixed variants


class Packs:
    """The packs of a results folder, read when first asked for."""

    def __init__(self, root: Path):
        self.root = root

    @cached_property
    def _content(self) -> tuple[dict[str, dict[str, Any]], dict[str, bytes]]:
        records: dict[str, dict[str, Any]] = {}
        arrays: dict[str, bytes] = {}
        for path in filter(Path.is_file, sorted(self.root.glob(PATTERN))):
            try:
                members = list(_members(path))
            except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
                raise UserError(f"'{path}' is torn ({error}): bring it here again, or move it away") from error
            for name, content in members:
                if name == LINES:
                    lines = content.decode(errors="replace").splitlines()
                    sound = (record for record in map(unsealed, lines) if record is not None and is_record(record))
                    records |= {record["key"]: record for record in sound}
                else:
                    arrays[Path(name).stem] = content
        return records, arrays

    @property
    def records(self) -> dict[str, dict[str, Any]]:
        """By key; a record whose checksum does not fit is not among them."""
        return self._content[0]

    def arrays(self, record: dict[str, Any]) -> dict[str, np.ndarray] | None:
        """The arrays of a packed record; None if they are not what the record says."""
        content = self._content[1].get(record["key"])
        if content is None or hashlib.sha256(content).hexdigest() != record["arrays"]:
            return None
        return unpack(content)


def is_record(record: dict[str, Any]) -> bool:
    """Whether it has what every record has; somebody else's JSON can be as whole as ours."""
    return (
        isinstance(record.get("key"), str)
        and record.get("status") in ("done", "failed")
        and all(isinstance(record.get(part), dict) for part in ("cell", "result", "made"))
    )


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path, "r:xz") as tar:
        for member in tar:
            if (content := tar.extractfile(member)) is not None:
                yield member.name, content.read()


def write_pack(path: Path, records: Iterable[tuple[dict[str, Any], dict[str, np.ndarray]]], light: bool) -> int:
    """Write records with their arrays, and count them. The objective of every iteration stays behind, except where the
    learning curve is what the cell is for. A `light` pack has what figures and claims need: no objectives at all, and
    no hyperparameters of ELBO fits, so that fixed variants that go on from it fit their ELBO again."""
    lines, members = [], []
    for record, arrays in records:
        record = {name: value for name, value in record.items() if name not in ("arrays", "sha256")}
        record["made"] = {**record["made"], "command": portable(shlex.split(record["made"]["command"]))}
        unwanted = HYPERPARAMETERS if light else ()
        if light or record["cell"]["evaluate"] == "end":
            unwanted = ("objective", *unwanted)
        arrays = {name: array for name, array in arrays.items() if name not in unwanted}
        if arrays:
            buffer = io.BytesIO()
            np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
            record["arrays"] = hashlib.sha256(buffer.getvalue()).hexdigest()
            members.append((f"arrays/{record['key']}.npz", buffer.getvalue()))
        lines.append(sealed(record))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:xz") as tar:
        for name, content in [(LINES, "\n".join(lines).encode() + b"\n"), *members]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    write_atomically(path, out.getvalue())
    return len(lines)
