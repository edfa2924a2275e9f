"""Deleting an experiment: what only it asked for. What another experiment asked for too stays."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from dlmexp.atomic import within
from dlmexp.errors import UserError, nearest
from dlmexp.records.manifest import read_manifests
from dlmexp.records.store import Store
from dlmexp.running import checkpoint


@dataclass(frozen=True)
class Removal:
    """What goes with an experiment, in the order of deletion: what says that it was asked for goes last, so that a
    removal that was interrupted can be given again."""

    keys: frozenset[str]  # cells that only this experiment asked for
    shared: int  # cells that another one asked for too: they stay
    packed: int  # cells of `keys` whose records are in packs, which stay as they are
    files: tuple[Path, ...]
    folders: tuple[Path, ...]  # that may be empty afterwards

    def remove(self) -> None:
        """Delete the files, and the folders that are empty then."""
        for path in self.files:
            path.unlink(missing_ok=True)
        for folder in self.folders:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def removal(root: Path, experiment: str) -> Removal:
    """What deleting an experiment of a results folder would delete. `UserError` if there is no such experiment."""
    manifests, store = read_manifests(root), Store(root, read_only=True)
    own, others = dict[str, str](), dict[str, str]()  # datasets by key
    for manifest in manifests:
        known = own if manifest.experiment == experiment else others
        known.update({key: group.dataset for group in manifest.candidates for key in group.keys})
    if not any(one.experiment == experiment for one in manifests):
        names = sorted({one.experiment for one in manifests})
        hint = nearest(experiment, names) if names else "there is none"
        raise UserError(f"there is no experiment '{experiment}' in {root}: {hint}")
    keys = frozenset(own.keys() - others.keys())
    records = [path for path in store.records.glob("*/*") if path.name[:20] in keys and path.name[20:21] in (".", "-")]
    checkpoints = [one.path for one in checkpoint.find(store) if {cell.key for cell in one.cells} <= keys]
    kept = {*others.values()}
    kept |= {path.parent.name for path in store.records.glob("*/*.json") if path.name[:20] not in keys}
    datasets = {own[key] for key in keys} - kept
    checksums = [path for path in sorted((root / "data").glob("*.json")) if path.stem in datasets]
    asked = sorted((root / experiment / "cells").glob("*.json"))
    folders = [*sorted({path.parent for path in records}), root / experiment / "cells", root / experiment]
    return Removal(
        keys,
        len(own) - len(keys),
        len(keys & store.packed),
        tuple(within(root, path) for path in (*sorted(records), *checkpoints, *checksums, *asked)),
        tuple(folders),
    )
