"""SLURM as the tests of this folder see it."""

import pytest

from dlmexp.experiment.cluster import jobs
from dlmexp.experiment.cluster.slurm import ENDED, JobState


@pytest.fixture
def slurm(monkeypatch):
    """The states that SLURM reports, by job; all other jobs have ended."""
    states: dict[str, JobState] = {}

    def job_states(job_ids):
        return {job_id: states.get(job_id, JobState(ENDED)) for job_id in job_ids}

    monkeypatch.setattr(jobs, "job_states", job_states)
    return states
