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
    text = "\n".join(lines) + "\n"
    name = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = root / experiment / "cells" / f"{name}.txt"
    if not path.exists():
        write_atomically(path, text.encode())


def remembered(root: Path) -> dict[str, dict[str, str]]:
    """For every experiment: its cells' keys, each with a line that describes the cell."""
    found: dict[str, dict[str, str]] = {}
    for path in sorted(root.glob("*/cells/*.txt")):
        cells = found.setdefault(path.parent.parent.name, {})
        for line in path.read_text().splitlines():
            key, _, words = line.partition(" ")
            cells[key] = words.partition(" ")[2]
    return found


def same_data(root: Path, dataset: str, checksum: str) -> None:
    """Refuse to mix results of different contents under one dataset's name."""
    path = root / "data" / f"{dataset}.json"
    if path.exists():
        known = json.loads(path.read_text())["checksum"]
        if known != checksum:
            raise UserError(
                f"dataset '{dataset}' has changed: the results in {root} were made from data with checksum "
                f"{known[:16]}, it is now {checksum[:16]}; restore the file, or give another folder with results=DIR"
            )
    else:
        write_atomically(path, json.dumps({"dataset": dataset, "checksum": checksum}).encode())
