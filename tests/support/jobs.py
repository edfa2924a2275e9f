"""Jobs of a results folder, as `dlmexp run -m` leaves them."""

from pathlib import Path

from dlmexp.experiment.cluster.jobs import write_submission


def submit_job(root: Path, job: str, *keys: str) -> Path:
    """Make the folder of a job for the cells with these keys, and return it."""
    folder = root / "multirun" / "sweep" / "jobs" / job
    write_submission(folder, job, ["dataset=a", "seeds=[0]"], keys)
    return folder
