"""Which logs tell of a job or a cell."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlmexp.cluster.jobs import SubmittedJob, read_submissions
from dlmexp.errors import UserError, nearest
from dlmexp.records.manifest import read_manifests
from dlmexp.records.record import Record
from dlmexp.records.store import FAILED, Store


@dataclass(frozen=True)
class Found:
    """Jobs whose logs were asked for, and the records of cells that no job trained: those have no log."""

    jobs: list[SubmittedJob]
    records: list[Record]


def find_logs(root: Path, words: Sequence[str]) -> Found:
    """The logs that words ask for: the id of a job (`12` for all tasks of an array, or `12_3`), the key of a cell or
    its beginning, or words of a cell's description (`banana seed=2 beta=1`). `UserError` if there are none."""
    jobs = read_submissions(root)
    chosen = [job for job in jobs if len(words) == 1 and words[0] in (job.id, job.id.partition("_")[0])]
    if chosen:
        return Found(chosen, [])
    asked = {key: group for m in read_manifests(root) for group in m.candidates for key in group.keys}
    descriptions = {key: group.describe(key) for key, group in asked.items()}
    keys = {key for key, text in descriptions.items() if _is_meant(words, key, text)}
    if not keys:
        known = [*(job.id for job in jobs), *sorted({group.dataset for group in asked.values()})]
        typed = " ".join(words)
        raise UserError(f"'{typed}' is neither a job nor a cell of {root}: {nearest(typed, known)}")
    chosen = [job for job in jobs if job.keys & keys]
    store, alone = Store(root, read_only=True), keys - {key for job in chosen for key in job.keys}
    records = (_record(store, asked[key].dataset, key) for key in sorted(alone))
    return Found(chosen, [record for record in records if record is not None])


def _is_meant(words: Sequence[str], key: str, description: str) -> bool:
    if len(words) == 1 and len(words[0]) >= 6 and key.startswith(words[0]):
        return True
    return set(words) <= set(description.split(" "))


def _record(store: Store, dataset: str, key: str) -> Record | None:
    return store.find(dataset, key) or store.read(store.path(dataset, key, FAILED))
