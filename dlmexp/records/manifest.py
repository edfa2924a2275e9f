"""What was asked for: the cells of every run, and which of them are candidates of one another.

Every run writes a manifest before it trains. `status` knows from it what is missing, and the selection of beta takes
its candidates from it: which betas belong together is never concluded from the records that happen to be there.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from dlmexp.atomic import within
from dlmexp.errors import Unreadable, UserError
from dlmexp.plan.cell import Candidates, Name
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json
from dlmexp.records.files import ABSENT, write_atomically


class Asked(msgspec.Struct, frozen=True):
    """The candidates of one selection: keys of cells that differ only in beta, the largest beta first."""

    method: str
    betas: str  # the rule or list they come from, in words: 'n, n/2, ... >= 0.01'
    keys: tuple[str, ...]
    protocol: str = "paper"  # manifests from before there were several have none
    selection: str = "reported"  # the metric that chooses: the one that is reported, or this one


class Manifest(msgspec.Struct, omit_defaults=True):
    """What one run asked for: a line that describes each cell, by key; the candidates, each with its protocol; and
    whose trained models are kept (`none | selected | all`)."""

    experiment: Name
    cells: dict[str, str]
    candidates: list[Asked]
    keep: str = "none"  # runs from before models were kept

    @property
    def protocols(self) -> dict[str, set[str]]:
        """The keys that were asked for under each protocol."""
        found: dict[str, set[str]] = {}
        for one in self.candidates:
            found.setdefault(one.protocol, set()).update(one.keys)
        return found


def manifest(experiment: str, candidates: Iterable[Candidates], keep: str = "none") -> Manifest:
    """The manifest of a planned run."""
    candidates = list(candidates)
    cells = {cell.key: cell.describe() for some in candidates for cell in some.cells}
    asked = {
        Asked(some.method, some.betas, tuple(cell.key for cell in some.cells), some.protocol, some.selection): None
        for some in candidates
    }
    return Manifest(experiment, dict(sorted(cells.items())), list(asked), keep)


def write_manifest(root: Path, asked: Manifest) -> None:
    """Add it to the experiment's folder: one file per content, named by it, so that no two collide."""
    text = msgspec.json.encode(asked)
    path = root / asked.experiment / "cells" / _name(text)
    if not path.exists() or path.read_bytes() != text:
        write_atomically(within(root, path), text)


def _name(text: bytes) -> str:
    return f"{hashlib.sha256(text).hexdigest()[:16]}.json"


def read_manifests(root: Path) -> list[Manifest]:
    """All manifests in a results folder; a file that is not what its name says is torn or foreign, and skipped."""
    found = []
    for path in sorted(root.glob("*/cells/*.json")):
        try:
            text = content(path)
            if _name(text) == path.name and (one := typed_json(text, Manifest)).experiment == path.parent.parent.name:
                found.append(one)  # tables are written, and files removed, in the folder that it names
        except (Unreadable, *ABSENT):
            continue
    return found


def merged(manifests: Iterable[Manifest]) -> list[Manifest]:
    """One manifest per experiment, without repeats."""
    found: dict[str, Manifest] = {}
    for one in manifests:
        known = found.setdefault(one.experiment, Manifest(one.experiment, {}, []))
        known.cells |= one.cells
        known.candidates = list(dict.fromkeys([*known.candidates, *one.candidates]))
    return list(found.values())


def check_same_data(root: Path, dataset: str, checksum: str, own: bool = False) -> None:
    """Refuse to mix results of different contents under one dataset's name; `own`: it is a user's own table."""
    path = root / "data" / f"{dataset}.json"
    if path.exists():
        known = _known_checksum(path)
        if known != checksum:
            made = f"the results in {root} were made from data with checksum {known[:16]}, it is now {checksum[:16]}"
            if own:
                raise UserError(
                    "there are results of another table, or of other rows or columns of it, under the name "
                    f"'{dataset}' ({made}): name this one with csv.name=NAME"
                )
            raise UserError(
                f"dataset '{dataset}' has changed: {made}; restore the file, or give another folder with results=DIR"
            )
    else:
        write_atomically(within(root, path), json.dumps({"dataset": dataset, "checksum": checksum}).encode())


def _known_checksum(path: Path) -> str:
    try:
        return typed_json(content(path), dict[str, str])["checksum"]
    except (Unreadable, KeyError):
        raise UserError(
            f"'{path}' is torn, so nobody can tell whether dataset '{path.stem}' is still the one these results were "
            "made from: delete that file if it is, or give another folder with results=DIR"
        ) from None
