"""Deleting: an experiment (what only it asked for), and what processes left behind that were killed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dlmexp.atomic import is_dead, within, writer_of
from dlmexp.errors import UserError, nearest
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.store import FAILED, Store
from dlmexp.running import checkpoint
from dlmexp.running.leases import disk_time, is_fresh, remove_stale

QUIET_SECONDS = 600.0  # a file that another machine has not changed for so long is not being written any more


class Removal(NamedTuple):
    """What goes with an experiment."""

    keys: frozenset[str]  # cells that only this experiment asked for
    shared: int  # cells that another one asked for too: they stay
    packed: int  # cells of `keys` whose records are in packs, which stay as they are
    files: list[Path]  # what says that they were asked for goes last, so that a removal can be given again
    folders: list[Path]  # that may be empty afterwards

    def remove(self) -> None:
        """Delete the files, and the folders that are empty then."""
        for path in self.files:
            path.unlink(missing_ok=True)
        for folder in self.folders:
            with contextlib.suppress(OSError):  # not empty
                folder.rmdir()


def removal(root: Path, experiment: str) -> Removal:
    """What deleting an experiment of a results folder would delete. `UserError` if there is no such experiment."""
    store, asked = Store(root, read_only=True), merged(read_manifests(root))
    if experiment not in asked:
        hint = nearest(experiment, sorted(asked)) if asked else "there is none"
        raise UserError(f"there is no experiment '{experiment}' in {root}: {hint}")
    datasets = {name: {key: group.dataset for group in groups for key in group.keys} for name, groups in asked.items()}
    own = datasets.pop(experiment)
    others = {key: dataset for some in datasets.values() for key, dataset in some.items()}
    keys = frozenset(own.keys() - others.keys())
    records = [path for path in store.records.glob("*/*") if path.name[:20] in keys and path.name[20:21] in (".", "-")]
    checkpoints = [path for path, saved in checkpoint.find(store).items() if {cell.key for cell in saved.cells} <= keys]
    kept = {path.parent.name for path in store.records.glob("*/*.json") if path.name[:20] not in keys}
    gone = {own[key] for key in keys} - kept - {*others.values()}
    checksums = [path for path in sorted((root / "data").glob("*.json")) if path.stem in gone]
    cells = sorted((root / experiment / "cells").glob("*.json"))
    packed = len(keys & {key for pack in store.packs for some in pack.keys for key in some})
    files = [within(root, path) for path in (*sorted(records), *checkpoints, *checksums, *cells)]
    folders = [*sorted({path.parent for path in records}), root / experiment / "cells", root / experiment]
    return Removal(keys, len(own) - len(keys), packed, files, folders)


def remove_leftovers(root: Path, everywhere: bool = False) -> list[Path]:
    """Delete what dead processes of this machine left in a results folder: unfinished files under temporary names, and
    their leases. With `everywhere`, also what those of other machines left, and arrays that no record belongs to.
    Checkpoints stay: the next run goes on from them. Returns what is gone."""
    removed = remove_stale(root, everywhere)
    for path in leftovers(root, everywhere):
        with contextlib.suppress(OSError):
            within(root, path).unlink()
            removed.append(path)
    return sorted(removed)


def leftovers(root: Path, everywhere: bool = False) -> list[Path]:
    """The files that `remove_leftovers` deletes beside leases."""
    now = disk_time(root) if everywhere else 0.0
    return sorted([*_temporaries(root, everywhere, now), *(_arrays_alone(root, now) if everywhere else ())])


def _temporaries(root: Path, everywhere: bool, now: float) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            if name.startswith(".") and (writer := writer_of(path := Path(folder, name))) is not None:
                dead = is_dead(writer)
                if dead or (dead is None and everywhere and not is_fresh(path, now, QUIET_SECONDS)):
                    yield path


def _arrays_alone(root: Path, now: float) -> Iterator[Path]:
    """Arrays whose cell has no record, done or failed. A run writes the arrays first, so only old ones are meant."""
    for path in Store(root).records.glob("*/*.npz"):
        key = path.name.partition("-")[0]
        has_record = any(path.with_name(key + suffix).exists() for suffix in (".json", FAILED))
        if not has_record and not is_fresh(path, now, QUIET_SECONDS):
            yield path
