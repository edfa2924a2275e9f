"""The sandbox cluster of `scripts/slurm-sandbox`, named by `DLMEXP_SLURM_SANDBOX`."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def sandbox() -> dict[str, str]:
    """The environment in which commands talk to the sandbox; a real cluster is never used for tests."""
    base = os.environ.get("DLMEXP_SLURM_SANDBOX")
    if not base:
        pytest.skip("no sandbox cluster: scripts/slurm-sandbox up DIR, then set DLMEXP_SLURM_SANDBOX=DIR")
    process = subprocess.run(
        ["bash", "-c", f". {shlex.quote(base)}/env && sinfo >&2 && env -0"], capture_output=True, text=True, timeout=60
    )
    if process.returncode:
        pytest.fail(f"the sandbox in {base} does not answer: {process.stderr}")
    env = dict(line.split("=", 1) for line in process.stdout.split("\0") if line)
    # Jobs may depend neither on a network, nor on a home folder, nor on the current folder that SLURM gives them.
    setup = "export HOME=/proc/nowhere http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9; cd /"
    return env | {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [env.get("PYTHONPATH")])]),
        "DLMEXP_SLURM_CPUS": "1", "DLMEXP_SLURM_MINUTES": "10", "DLMEXP_SLURM_SETUP": setup,
        "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
    }  # fmt: skip
