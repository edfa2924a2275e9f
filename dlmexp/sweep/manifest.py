"""Which cells an experiment consists of, kept in its folder, so that `status` knows what is missing."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from dlmexp.errors import UserError
from dlmexp.sweep.cell import Cell
from dlmexp.sweep.sealed import write_atomically


def remember(root: Path, experiment: str, cells: Iterable[Cell]) -> None:
    """Add the cells to the experiment's list: one file per set of cells, named by its content, so none collide."""
    lines = sorted(f"{cell.key} {cell.dataset} {cell.describe()}" for cell in cells)
    content = ("\n".join(lines) + "\n").encode()
    path = root / experiment / "cells" / _name(content)
    if not path.exists() or path.read_bytes() != content:
        write_atomically(path, content)


def _name(content: bytes) -> str:
    return f"{hashlib.sha256(content).hexdigest()[:16]}.txt"


def remembered(root: Path) -> dict[str, dict[str, str]]:
    """For every experiment: its cells' keys, each with a line that describes the cell.

    A file that is not what its name says is torn or somebody else's, and skipped.
    """
    found: dict[str, dict[str, str]] = {}
    for path in sorted(root.glob("*/cells/*.txt")):
        if not path.is_file() or _name(content := path.read_bytes()) != path.name:
            continue
        cells = found.setdefault(path.parent.parent.name, {})
        for line in content.decode().splitlines():
            key, _, words = line.partition(" ")
            cells[key] = words.partition(" ")[2]
    return found


def same_data(root: Path, dataset: str, checksum: str) -> None:
    """Refuse to mix results of different contents under one dataset's name."""
    path = root / "data" / f"{dataset}.json"
    if path.exists():
        known = _known_checksum(path)
        if known != checksum:
            raise UserError(
                f"dataset '{dataset}' has changed: the results in {root} were made from data with checksum "
                f"{known[:16]}, it is now {checksum[:16]}; restore the file, or give another folder with results=DIR"
            )
    else:
        write_atomically(path, json.dumps({"dataset": dataset, "checksum": checksum}).encode())


def _known_checksum(path: Path) -> str:
    try:
        return str(json.loads(path.read_bytes())["checksum"])
    except (ValueError, KeyError, TypeError):
        raise UserError(
            f"'{path}' is torn, so nobody can tell whether dataset '{path.stem}' is still the one these results were "
            "made from: delete that file if it is, or give another folder with results=DIR"
        ) from None
