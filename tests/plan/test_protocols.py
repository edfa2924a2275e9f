"""Every protocol asks for what was published under it (docs/SPEC.md, section 6), value by value: all that trains a cell
is in its key."""

import numpy as np
import pytest

from dlmexp.data.dataset import Dataset
from dlmexp.plan.compose import compose, parts
from dlmexp.plan.grid import Grid
from dlmexp.records.results import ResultsFolder, load
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.published
RUNS = (
    "experiment=paper", "experiment=anatomy", "experiment=reg-sq dataset=sarcos_test",
    "experiment=count-log dataset=peds1_left", "experiment=airline dataset=flights",
)  # fmt: skip
FLIGHTS = 1_022_684  # rows; its file does not say


@pytest.fixture(scope="module")
def published() -> ResultsFolder:
    return load(REPOSITORY / "results" / "paper")


@pytest.mark.parametrize("protocol", ["paper", "released", "annealed"])
def test_what_is_asked_for_was_published(published, protocol):
    """Cells, their betas, what selects among them, and what differs from the protocol; of one repetition."""
    checksums = dict(zip(published.candidates["dataset"], published.candidates["data"], strict=True))
    known, asked = {group.identity: group.setting for group in published.asked}, []
    runs = [compose([*run.split(), f"protocol={protocol}", "seeds=[0]"]) for run in RUNS]
    for config in (part for run in runs for part in parts(run)):
        for key, dataset in config.dataset.items():
            if checksum := checksums.get(dataset.name):
                y = np.zeros(dataset.rows or FLIGHTS)
                data = Dataset(y[:, None], y, name=dataset.name, task=dataset.task, checksum=checksum)
                asked += [group for group, _ in Grid(config, key, dataset, data).candidates()]
    assert len(asked) > 300
    assert [group for group in asked if known.get(group.identity) != group.setting] == []
