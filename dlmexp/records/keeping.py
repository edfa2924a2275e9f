"""Whose trained models stay: of `keep=all` every one, of `keep=selected` those of the cells that are selected.

Every fit writes its model, for nobody knows yet whether it will be selected. Once all candidates of a selection have a
record, the models of the others are deleted. Any process may do that, at any time and more than once: what is deleted
follows from manifests and records alone. A process that dies before leaves models too many, never too few, and the next
run of these cells deletes them.
"""

from collections.abc import Collection, Iterable, Mapping

from dlmexp.atomic import within
from dlmexp.records.manifest import Asked, Manifest, read_manifests
from dlmexp.records.schema import Record
from dlmexp.records.selection import Choice, choices
from dlmexp.records.store import FAILED, Store

REPORTED = ("nll", "mse")  # the metrics by which tables and figures select


def selected_keys(choice: Choice) -> set[str]:
    """The cells of a complete choice whose models are kept: the one that is selected, by each metric that selects. All
    that are done where nothing can be selected, as without validation rows."""
    found = {record.key for metric in REPORTED if (record := choice.selected(metric)) is not None}
    return found or {record.key for record in choice.records if record.done}


def drop_unselected(store: Store, among: Collection[str] | None = None) -> int:
    """Delete the models of `among` these cells (of all) that no run in the folder keeps; how many cells had one."""
    files = store.keys_with_models()
    keys = files.keys() if among is None else files.keys() & set(among)
    datasets = {key: files[key][0].parent.name for key in keys}
    unwanted = _unwanted(read_manifests(store.root), datasets, store)
    for key in unwanted:
        for path in files[key]:
            within(store.root, path).unlink(missing_ok=True)
    return len(unwanted)


def without_model(store: Store, asked: Iterable[Asked], datasets: Mapping[str, str], keep: str) -> set[str]:
    """The done cells that should have a model by `keep` and have no sound one. A damaged one is quarantined.

    `datasets` gives the dataset of every key."""
    records = _Records(store)
    wanted: set[str] = set()
    for one in asked:
        if keep == "all":
            wanted |= {key for key in one.keys if (record := records.of(datasets[key], key)) and record.done}
        else:
            wanted |= _selected(one, datasets[one.keys[0]], records) or set()
    found = set()
    for key in wanted:
        record = records.of(datasets[key], key)
        if record is not None and record.cell.kind == "fit" and not store.has_sound_model(record):
            found.add(key)
    return found


def _unwanted(manifests: Iterable[Manifest], datasets: Mapping[str, str], store: Store) -> set[str]:
    """Of the cells with a model (and their datasets) those that were a candidate, and that nobody keeps."""
    records, candidates, wanted = _Records(store), set[str](), set[str]()
    for manifest in manifests:
        if manifest.keep == "none":
            continue
        for one in manifest.candidates:
            present = datasets.keys() & set(one.keys)
            if not present:
                continue
            candidates |= present
            kept = _selected(one, datasets[next(iter(present))], records) if manifest.keep == "selected" else None
            wanted |= present if kept is None else present & kept
    return candidates - wanted


def _selected(asked: Asked, dataset: str, records: "_Records") -> set[str] | None:
    """The cells whose models a selection keeps; None while it lacks records."""
    found = {key: record for key in asked.keys if (record := records.of(dataset, key)) is not None}
    if len(found) < len(asked.keys):
        return None
    (choice,) = choices([asked], found)
    return selected_keys(choice)


class _Records:
    """Records by key, done or failed, each read once."""

    def __init__(self, store: Store):
        self.store = store
        self._known: dict[str, Record | None] = {}

    def of(self, dataset: str, key: str) -> Record | None:
        if key not in self._known:
            own = self.store.read(self.store.path(dataset, key))
            packed = self.store.packs.records.get(key)
            done = own or (packed if packed is not None and packed.done else None)
            self._known[key] = done or self.store.read(self.store.path(dataset, key, FAILED)) or packed
        return self._known[key]
