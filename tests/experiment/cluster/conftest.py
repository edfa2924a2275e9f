"""SLURM as the tests of this folder see it."""

import pytest

from dlmexp.experiment.cluster import jobs
from dlmexp.experiment.cluster.slurm import ENDED, JobState


@pytest.fixture
def slurm(monkeypatch, tmp_path):
    """The states that SLURM reports, by job; all other jobs have ended.

    The scripts of all jobs lie in the results folder `tmp_path`.
    """
    states: dict[str, JobState] = {}

    def job_states(job_ids):
        return {job_id: states.get(job_id, JobState(ENDED)) for job_id in job_ids}

    def job_scripts(job_ids):
        return dict.fromkeys(job_ids, tmp_path / "multirun" / "sweep" / "jobs" / "job.sh")

    monkeypatch.setattr(jobs, "job_states", job_states)
    monkeypatch.setattr(jobs, "job_scripts", job_scripts)
    return states
