"""What `M=auto` has chosen, kept in the results folder.

A choice depends on a short fit, whose last digits differ from machine to machine. All processes of
a run, the jobs of a cluster and a later run of the same command take the recorded choice, so that
all of them request the same cells.
"""

import hashlib
from operator import attrgetter
from pathlib import Path

import msgspec

from dlmexp.common.atomic import ABSENT, path_inside, write_atomically
from dlmexp.common.errors import Unreadable
from dlmexp.common.reading.files import json_value, read_content
from dlmexp.experiment.plan.cell import Cell, Count, Name

FIELDS_OF_DATA = ("dataset", "data", "split", "n", "cv")
FIELDS_OF_MODEL = ("kernel", "ard", "likelihood", "mean", "initial", "inducing", "noise_floor")
"""The fields of a cell that a choice depends on: these and those of the data."""


class ChosenInducingCount(msgspec.Struct, frozen=True):
    """A number of inducing inputs that was chosen from the data.

    Attributes:
        dataset: The dataset.
        source: A hash of what the choice depends on: rows, model and rule (`source_of`).
        M: The chosen number.
    """

    dataset: Name
    source: str
    M: Count


def source_of(cell: Cell, tolerance: float) -> str:
    """Return a hash of the rows, the model and the rule of a choice.

    Args:
        cell: A cell whose M is the largest that may be chosen.
        tolerance: The most that a larger M may gain, in nats per row.
    """
    fields = attrgetter(*FIELDS_OF_DATA, *FIELDS_OF_MODEL)
    values = [cell.M, tolerance, *fields(cell)]
    return hashlib.sha256(msgspec.json.encode(values)).hexdigest()[:16]


def chosen_folder(root: Path, dataset: str) -> Path:
    """Return the folder with the choices for a dataset."""
    return root / "data" / f"{dataset}.M"


def write_inducing_count(root: Path, chosen: ChosenInducingCount) -> None:
    """Write a choice, unless there is one already."""
    path = chosen_folder(root, chosen.dataset) / f"{chosen.source}.json"
    if not path.exists():
        write_atomically(path_inside(root, path), msgspec.json.encode(chosen))


def recorded_inducing_count(root: Path, dataset: str, source: str) -> int | None:
    """Return the M that was chosen before; None if no sound file has this choice."""
    path = chosen_folder(root, dataset) / f"{source}.json"
    try:
        chosen = json_value(read_content(path), ChosenInducingCount)
    except (Unreadable, *ABSENT):
        return None
    is_sound = chosen.source == source and chosen.M > 0
    return chosen.M if is_sound else None
