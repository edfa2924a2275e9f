"""What was asked for, written before anything is trained: cells, and which of them are candidates of one another.

`status` knows from it what is missing, and the tidy table takes its groups of candidates and their settings from it.
Neither is ever concluded from the records that happen to be there.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import msgspec

from dlmexp.atomic import ABSENT, within, write_atomically
from dlmexp.errors import Unreadable, UserError
from dlmexp.plan.cell import Asked, Name
from dlmexp.reading.files import content, typed_json


class Manifest(msgspec.Struct, omit_defaults=True):
    """What one run asked for, and whose trained models are kept (`none | selected | all`)."""

    experiment: Name
    candidates: list[Asked]
    keep: str = "none"

    @property
    def keys(self) -> set[str]:
        return {key for asked in self.candidates for key in asked.keys}


def manifest(experiment: str, asked: Iterable[Asked], keep: str = "none") -> Manifest:
    """The manifest of a run that asks for these."""
    return Manifest(experiment, distinct(asked), keep)


def distinct(asked: Iterable[Asked]) -> list[Asked]:
    """All that was asked for, each of it once."""
    return list({each.identity: each for each in asked}.values())


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
    manifests = []
    for path in sorted(root.glob("*/cells/*.json")):
        try:
            text = content(path)
            if _name(text) == path.name and (read := typed_json(text, Manifest)).experiment == path.parent.parent.name:
                manifests.append(read)  # tables are written, and files removed, in the folder that it names
        except (Unreadable, *ABSENT):
            continue
    return manifests


def merged(manifests: Iterable[Manifest]) -> dict[str, list[Asked]]:
    """What each experiment asked for, over all its runs, without repeats."""
    together: dict[str, list[Asked]] = {}
    for each in manifests:
        together.setdefault(each.experiment, []).extend(each.candidates)
    return {experiment: distinct(asked) for experiment, asked in together.items()}


def check_same_data(root: Path, dataset: str, checksum: str) -> None:
    """Refuse to mix results of different contents under one dataset's name."""
    path = root / "data" / f"{dataset}.json"
    text = json.dumps({"dataset": dataset, "checksum": checksum}).encode()
    if not path.exists():
        write_atomically(within(root, path), text)
    elif content(path) != text:
        raise UserError(
            f"dataset '{dataset}' has changed: its checksum is {checksum[:16]}, and '{path}' has another; restore the "
            "data, give another folder with results=DIR, or name a table of your own with csv.name=NAME"
        )
