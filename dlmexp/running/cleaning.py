"""Deleting: an experiment (what only it asked for), and what processes left behind that were killed."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from dlmexp.atomic import is_dead, within, writer_of
from dlmexp.errors import UserError, nearest
from dlmexp.records.manifest import merged, read_manifests
from dlmexp.records.store import Store
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


def remove_leftovers(root: Path) -> list[Path]:
    """Delete what dead processes left in a results folder: unfinished files under temporary names, and leases. What
    other machines wrote goes when it has been quiet for a while. Checkpoints stay: the next run goes on from them.
    Returns what is gone."""
    removed, now = remove_stale(root), disk_time(root)
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names if name.startswith(".")):
            writer = writer_of(path)
            dead = False if writer is None else is_dead(writer)
            if dead or (dead is None and not is_fresh(path, now, QUIET_SECONDS)):
                with contextlib.suppress(OSError):
                    within(root, path).unlink()
                    removed.append(path)
    return sorted(removed)
