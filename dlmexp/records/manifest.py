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
from dlmexp.plan.cell import Name
from dlmexp.plan.setting import Candidates, Setting
from dlmexp.reading.files import content
from dlmexp.reading.json_text import typed_json


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The candidates of one selection: cells that differ only in beta, the largest first."""

    method: str
    dataset: Name
    n: int
    seed: int
    size: str  # as it was typed: '5%', '100'
    label: str  # estimator and q, for people: 'bmc-10 unwhitened'
    experiment: str
    role: str
    setting: Setting
    betas: tuple[float | None, ...]
    keys: tuple[str, ...]
    stands_for: str | None = None

    def describe(self, key: str) -> str:
        """One line for people about one of the candidates."""
        beta = self.betas[self.keys.index(key)]
        chosen = "" if beta is None else f" beta={beta:g}"
        return f"{self.dataset} n={self.n} seed={self.seed} {self.method} {self.label}{chosen}"

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes it the same as another one."""
        return self.experiment, self.role, self.method, self.setting.protocol, self.setting.text, self.keys


class Manifest(msgspec.Struct, omit_defaults=True):
    """What one run asked for, and whose trained models are kept (`none | selected | all`)."""

    experiment: Name
    candidates: list[Asked]
    keep: str = "none"

    @property
    def keys(self) -> set[str]:
        return {key for asked in self.candidates for key in asked.keys}


def manifest(experiment: str, candidates: Iterable[Candidates], keep: str = "none") -> Manifest:
    """The manifest of a planned run."""
    asked = {}
    for group in candidates:
        cell = group.cells[0]
        q = "" if cell.parameterisation == "whitened" else f" {cell.parameterisation}"
        written = Asked(
            method=group.method, dataset=cell.dataset, n=cell.n, seed=cell.seed, size=group.size,
            label=f"{cell.estimator_label}{q}{cell.floor_label}", experiment=group.experiment, role=group.role,
            setting=group.setting, betas=tuple(each.beta for each in group.cells),
            keys=tuple(each.key for each in group.cells), stands_for=group.stands_for,
        )  # fmt: skip
        asked.setdefault(written.identity, written)
    return Manifest(experiment, list(asked.values()), keep)


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
    together: dict[str, dict[tuple[object, ...], Asked]] = {}
    for each in manifests:
        together.setdefault(each.experiment, {}).update({asked.identity: asked for asked in each.candidates})
    return {name: list(asked.values()) for name, asked in together.items()}


def check_same_data(root: Path, dataset: str, checksum: str) -> None:
    """Refuse to mix results of different contents under one dataset's name."""
    path = root / "data" / f"{dataset}.json"
    if not path.exists():
        write_atomically(within(root, path), json.dumps({"dataset": dataset, "checksum": checksum}).encode())
        return
    try:
        known = typed_json(content(path), dict[str, str])["checksum"]
    except (Unreadable, KeyError):
        known = "unknown (it is torn)"
    if known != checksum:
        raise UserError(
            f"dataset '{dataset}' has changed: the checksum in '{path}' is {known[:20]}, it is now {checksum[:16]}; "
            "restore the data, give another folder with results=DIR, or name a table of your own with csv.name=NAME"
        )
