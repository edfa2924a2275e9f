"""Whose trained models stay: of `keep=all` every one, of `keep=selected` those of the cells that are selected.

Every fit writes its model, for nobody knows yet whether it will be selected. Once all candidates of a selection have a
record, the models of the others are deleted. Any process may do that, at any time and more than once: what is deleted
follows from manifests and records alone. A process that dies before leaves models too many, never too few, and the next
run of these cells deletes them.
"""

from collections.abc import Collection, Sequence

import pandas as pd

from dlmexp.atomic import within
from dlmexp.errors import Unreadable
from dlmexp.records.manifest import Asked, read_manifests
from dlmexp.records.store import Store
from dlmexp.records.table import Frames


def drop_unselected(store: Store, among: Collection[str] | None = None) -> int:
    """Delete the models of `among` these cells (of all) that no run in the folder keeps; how many cells had one."""
    files = store.keys_with_models()
    keys = files.keys() if among is None else files.keys() & set(among)
    unwanted = set[str]()
    kept = set[str]()
    for manifest in read_manifests(store.root) if keys else ():
        asked = [group for group in manifest.candidates if not keys.isdisjoint(group.keys)]
        if manifest.keep != "none" and asked:
            unwanted |= {key for group in asked for key in group.keys if key in keys}
            kept |= set(_wanted(store, asked, manifest.keep)["key"])
    for key in unwanted - kept:
        for path in files[key]:
            within(store.root, path).unlink(missing_ok=True)
    return len(unwanted - kept)


def without_model(store: Store, asked: Sequence[Asked], keep: str) -> set[str]:
    """Keys of the done fits that should have a model by `keep` and have no sound one. A damaged one is quarantined."""
    missing = set()
    rows = _wanted(store, asked, keep)
    rows = rows[(rows["status"] == "done") & (rows["kind"] == "fit")]
    models = rows["model"] if "model" in rows else [None] * len(rows)  # packed records have none
    for key, dataset, checksum in zip(rows["key"], rows["dataset"], models, strict=True):
        checksum = checksum if isinstance(checksum, str) else None
        try:
            if store.model(dataset, key, checksum) is None:
                missing.add(key)
        except Unreadable as why:
            assert checksum is not None
            store.quarantine(store.model_path(dataset, key, checksum), str(why))
            missing.add(key)
    return missing


def _wanted(store: Store, asked: Sequence[Asked], keep: str) -> pd.DataFrame:
    """The candidates whose models are kept: all, or those that are selected by any metric. All of a group while it
    lacks records, or where nothing can be selected."""
    frames = Frames(store.cells({key for group in asked for key in group.keys}), asked)
    candidates, table = frames.candidates, frames.table
    if keep == "all":
        return candidates
    selected = table[table["status"] == "done"]
    undecided = ~candidates["group"].isin(selected["group"])
    return candidates[undecided | candidates["key"].isin(selected["key"])]
