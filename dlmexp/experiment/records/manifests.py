"""Manifests: the groups of candidates that runs requested, written before anything is trained.

`dlmexp status` finds missing cells by comparing manifests with records. The tidy table takes groups
of candidates and their settings from manifests. Records alone do not tell: they lack the requested
cells that were never trained, and a cell does not know which methods and experiments requested it.
"""

import hashlib
import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dlmexp.common.atomic import ABSENT, path_inside, write_atomically
from dlmexp.common.errors import Unreadable, UserError
from dlmexp.common.reading.files import json_value, read_content
from dlmexp.experiment.plan.cell import CandidateGroup, Name
from dlmexp.experiment.records.inducing_counts import chosen_folder


class Manifest(msgspec.Struct, omit_defaults=True):
    """What one run requested."""

    experiment: Name
    candidates: Sequence[CandidateGroup]
    keep: str = "none"  # which trained models are kept: none | selected | all


def distinct(groups: Iterable[CandidateGroup]) -> list[CandidateGroup]:
    """Return the groups of candidates without repeats: of equal groups, the last."""
    by_identity = {group.identity: group for group in groups}
    return list(by_identity.values())


def write_manifest(root: Path, manifest: Manifest) -> None:
    """Write a manifest into the folder of its experiment.

    The name of the file is a hash of its content, so that different runs write different files.
    """
    groups = distinct(manifest.candidates)
    text = msgspec.json.encode(msgspec.structs.replace(manifest, candidates=groups))
    path = root / manifest.experiment / "cells" / _file_name(text)
    if _content_or_none(path) != text:  # new or damaged
        write_atomically(path_inside(root, path), text)


def _content_or_none(path: Path) -> bytes | None:
    """Return the bytes of a file; None if it does not exist, or is not a plain file."""
    try:
        return read_content(path)
    except (Unreadable, *ABSENT):
        return None


def _file_name(text: bytes) -> str:
    return f"{hashlib.sha256(text).hexdigest()[:16]}.json"


def read_manifests(root: Path) -> list[Manifest]:
    """Return all manifests in a results folder, without files that are damaged or not manifests."""
    manifests = []
    for path in sorted(root.glob("*/cells/*.json")):
        try:
            text = read_content(path)
            if _file_name(text) != path.name:
                continue
            manifest = json_value(text, Manifest)
        except (Unreadable, *ABSENT):
            continue
        # A manifest is trusted only in the folder of its own experiment, because tables are written
        # and files are removed in the folder that it names.
        if manifest.experiment == path.parent.parent.name:
            manifests.append(manifest)
    return manifests


def check_same_data(root: Path, dataset: str, checksum: str, read_only: bool = False) -> None:
    """Refuse to mix results on different data under one dataset's name.

    Args:
        root: The results folder.
        dataset: The name of the dataset.
        checksum: The checksum of its data.
        read_only: Do not store the checksum of a new dataset.

    Raises:
        UserError: The folder has results of the dataset with another checksum.
    """
    path = root / "data" / f"{dataset}.json"
    expected = _checksum_file(dataset, checksum)
    if not path.exists():
        if not read_only:
            write_atomically(path_inside(root, path), expected)
    elif read_content(path) != expected:
        problem = (
            f"dataset '{dataset}' has changed, or how its rows are divided: "
            f"its checksum is {checksum[:16]}"
        )
        advice = (
            "restore the data, give another folder with results=DIR, name a table of your own "
            "with csv.name=NAME, or forget its earlier results with csv.replace=true"
        )
        raise UserError(f"{problem}, and '{path}' has another; {advice}")


def _checksum_file(dataset: str, checksum: str) -> bytes:
    """Return the content of the file that keeps the checksum of a dataset."""
    return json.dumps({"dataset": dataset, "checksum": checksum}).encode()


def forget_other_data(root: Path, dataset: str, checksum: str) -> None:
    """Delete all results on a user's table if its checksum is no longer that of the results."""
    path = root / "data" / f"{dataset}.json"
    if not path.exists() or read_content(path) == _checksum_file(dataset, checksum):
        return
    # Records, manifests (an experiment on a user's table has the name of the table), choices of M.
    folders = (root / "records" / dataset, root / dataset / "cells", chosen_folder(root, dataset))
    for folder in folders:
        if folder.is_dir():
            shutil.rmtree(path_inside(root, folder))
    for file in (path, root / "tables" / f"{dataset}.baselines.json"):
        path_inside(root, file).unlink(missing_ok=True)
