"""Files that a process left behind when it was killed, or its host died: nobody reads them, nobody will finish them."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dlmexp.atomic import within
from dlmexp.records.files import writer_of
from dlmexp.records.owner import is_dead
from dlmexp.records.store import FAILED, Store
from dlmexp.running.presence import is_fresh, read_presence

QUIET_SECONDS = 600.0  # a file that another machine has not changed for so long is not being written any more


def leftovers(root: Path, everywhere: bool = False) -> list[Path]:
    """What dead processes of this machine left in a results folder: unfinished files under temporary names, and files
    of presence. With `everywhere`, also what those of other machines left, and arrays that no record belongs to.
    Checkpoints are no leftovers: the next run goes on from them."""
    found = [*_temporaries(root, everywhere), *_presences(root, everywhere)]
    return sorted([*found, *_arrays_alone(root)] if everywhere else found)


def remove_leftovers(root: Path, everywhere: bool = False) -> list[Path]:
    """Delete them; returns those that are gone."""
    removed = []
    for path in leftovers(root, everywhere):
        with contextlib.suppress(OSError):
            within(root, path).unlink()
            removed.append(path)
    return removed


def _temporaries(root: Path, everywhere: bool) -> Iterator[Path]:
    for folder, _, names in os.walk(root):
        for name in names:
            if name.startswith(".") and (writer := writer_of(path := Path(folder, name))) is not None:
                dead = is_dead(writer)
                if dead or (dead is None and everywhere and not is_fresh(path, seconds=QUIET_SECONDS)):
                    yield path


def _presences(root: Path, everywhere: bool) -> Iterator[Path]:
    for path in (root / "running").glob("*.json"):
        process = read_presence(path)
        if (process is not None and process.ended) or (everywhere and not is_fresh(path)):
            yield path


def _arrays_alone(root: Path) -> Iterator[Path]:
    """Arrays whose cell has no record, done or failed. A run writes the arrays first, so only old ones are meant."""
    for path in Store(root).records.glob("*/*.npz"):
        key = path.name.partition("-")[0]
        has_record = any(path.with_name(key + suffix).exists() for suffix in (".json", FAILED))
        if not has_record and not is_fresh(path, seconds=QUIET_SECONDS):
            yield path
