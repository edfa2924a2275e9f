"""Sweeps on a real SLURM: jobs that are cancelled, requeued, preempted, out of time or failing lose
nothing.

The scenarios run at the same time, each in a thread and a results folder of its own: they mostly
wait for the cluster."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dlmexp.common.provenance import commit
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.checkpoints import find_checkpoints
from tests.support.processes import comparable

pytestmark = pytest.mark.slurm

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_SECONDS = 900  # for any one event; on busy cores some take minutes

# Two cells that never converge and pause at each step: a block takes a hundredth of a second per
# iteration, hardly more on a busy machine.
BLOCK = [
    "plugins=[tests.support.paused]", "estimator=paused",
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=300", "dataset.ringnorm_drawn.M=10", "sizes=[40]",
    "seeds=[0]", "method=joint_log_dlm", "beta=list", "beta.values=[1,0.1]", "training.binary.tolerance=0",
    "checkpoint_seconds=1", "device=cpu",
]  # fmt: skip
SMALL = [*BLOCK, "training.binary.max_iterations=1000"]
QUICK = [*BLOCK, "training.binary.max_iterations=60"]
Results = dict[str, Any]
Scenario = Callable[["Folder", Results], Any]


@dataclass
class Folder:
    """A results folder, and the command and environment of a user who works in it."""

    root: Path
    env: dict[str, str]
    command: Sequence[str] = (sys.executable, "-m", "dlmexp")
    user: str = "root"
    started: int = 0

    @property
    def output_file(self) -> Path:
        """Where the command that was started last prints to."""
        return self.root.with_name(f"{self.root.name}-{self.user}-{self.started}.txt")

    def start(self, *words: str, launcher: str = "slurm") -> "subprocess.Popen[bytes]":
        through = ["-m", f"hydra/launcher={launcher}"] if launcher else []
        command = [*self.command, "run", *through, f"results={self.root}", *words]
        self.started += 1
        with self.output_file.open("w") as file:
            return subprocess.Popen(
                command, env=self.env, cwd=self.root.parent, stdout=file, stderr=file
            )

    def end(self, process: "subprocess.Popen[bytes]") -> int:
        with process:
            try:
                return process.wait(timeout=TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise AssertionError(f"timed out; it printed: {self.output}") from None

    def run(self, *words: str, launcher: str = "slurm") -> int:
        return self.end(self.start(*words, launcher=launcher))

    @property
    def output(self) -> str:
        """What the command that was started last has printed so far."""
        return self.output_file.read_text()

    def status(self) -> dict[str, Any]:
        words = [*self.command, "status", "--json", "--results", str(self.root)]
        return json.loads(
            subprocess.run(words, env=self.env, capture_output=True, text=True, check=True).stdout
        )

    def counts(self) -> tuple[int, int]:
        """Cells done, and cells without any record, whether queued, running or missing."""
        found = self.status()["experiments"]
        return sum(e["done"] for e in found), sum(
            e["missing"] + e["queued"] + e["running"] for e in found
        )

    def slurm(self, *words: str) -> str:
        return subprocess.run(
            words, env=self.env, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    def jobs(self) -> list[str]:
        """Every job that was ever submitted for this folder."""
        return sorted(
            path.parent.name for path in self.root.glob("multirun/*/jobs/*/submitted.json")
        )

    def log(self, job: str = "*") -> str:
        """What a job has printed, or all of them."""
        return "".join(
            path.read_text() for path in self.root.glob(f"multirun/*/jobs/{job}/*_log.out")
        )

    def trained(self, description: str) -> int:
        """How often a job started to train such a batch (rather than find it done, or resume
        it)."""
        started = [
            line
            for line in re.split(r"\nbatch ", self.log())
            if re.match(rf"\S+\s+{description}", line)
        ]
        return sum("resumes at" not in line for line in started)

    def reached(self) -> int:
        """The largest iteration of a checkpoint; 0 where there is none."""
        saved = find_checkpoints(Store(self.root, read_only=True)).values()
        return max((checkpoint.iteration or 0 for checkpoint in saved), default=0)


def wait_until(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"timed out: {what}"
        time.sleep(0.3)


def resumed_at(log: str) -> list[int]:
    return [int(number) for number in re.findall(r"resumes at iteration (\d+)", log)]


@pytest.fixture(scope="session")
def sandbox() -> dict[str, str]:
    """The environment in which commands talk to the sandbox; a real cluster is never used for
    tests."""
    base = os.environ.get("DLMEXP_SLURM_SANDBOX")
    if not base:
        pytest.skip(
            "no sandbox cluster: scripts/slurm-sandbox up DIR, then set DLMEXP_SLURM_SANDBOX=DIR"
        )
    process = subprocess.run(
        ["bash", "-c", f". {shlex.quote(base)}/env && sinfo >&2 && env -0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if process.returncode:
        pytest.fail(f"the sandbox in {base} does not answer: {process.stderr}")
    env = dict(line.split("=", 1) for line in process.stdout.split("\0") if line)
    # Jobs may depend neither on a network, nor on a home folder, nor on the current folder that
    # SLURM gives them.
    setup = "export HOME=/proc/nowhere http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9; cd /"
    return env | {
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, [env.get("PYTHONPATH")])]),
        "DLMEXP_SLURM_CPUS": "1", "DLMEXP_SLURM_MINUTES": "10", "DLMEXP_SLURM_SETUP": setup,
        "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE",
    }  # fmt: skip


@pytest.fixture(scope="module")
def finished(
    sandbox: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Callable[[Scenario], None]]:
    """Starts all selected scenarios; call it with one of them to wait for its end. Each gets the
    results of the small block, trained on this machine without interruption."""
    top = tmp_path_factory.mktemp("slurm")
    reference = Folder(top / "reference", sandbox)
    assert reference.run(*SMALL, launcher="") == 0, reference.output
    names = {item.name for item in request.session.items}
    chosen = [each for each in SCENARIOS if f"test_scenario[{each.__name__}]" in names]
    with ThreadPoolExecutor(len(SCENARIOS)) as threads:
        futures = {
            each: threads.submit(
                each, Folder(top / each.__name__, sandbox), comparable(reference.root)
            )
            for each in chosen
        }
        yield lambda scenario: futures[scenario].result(timeout=TIMEOUT_SECONDS + 60)


def begun(
    folder: Folder, *words: str, launcher: str = "slurm"
) -> tuple["subprocess.Popen[bytes]", str]:
    """A run whose only job has made progress, and that job."""
    process = folder.start(*words, launcher=launcher)
    wait_until(folder.reached, "a checkpoint")
    (job,) = folder.jobs()
    return process, job


def finishes(
    folder: Folder, process: "subprocess.Popen[bytes]", results: Results, *jobs: str
) -> None:
    """The run ends well, with these results and no other jobs than these, and nothing is
    missing."""
    assert folder.end(process) == 0, folder.output
    assert folder.jobs() == sorted(jobs)
    assert comparable(folder.root) == results
    assert folder.counts() == (2, 0)
    assert folder.status()["jobs"] == []


def sweep(folder: Folder, results: Results) -> None:
    """Two datasets x two estimators of a fixed variant: the two blocks of a dataset need the same
    ELBO fit."""
    words = [
        "dataset=ringnorm_drawn,twonorm_drawn", "estimator=exact,bmc", "method=fixed_log_dlm", "sizes=[40]",
        "seeds=[0,1]", "beta=list", "beta.values=[1,0.1]", "training.binary.max_iterations=60", "device=cpu",
    ]  # fmt: skip
    here = Folder(folder.root.with_name("sweep-here"), folder.env)
    process = folder.start(*words)
    assert here.run(*words, launcher="basic") == 0, here.output
    assert folder.end(process) == 0, folder.output
    results = comparable(folder.root)
    assert results == comparable(here.root)
    commits = {record.made.commit for record in Store(folder.root).own_records()} | {commit()}
    assert len({each and each.rstrip("+") for each in commits}) == 1, (
        "of this checkout, which somebody may be editing"
    )
    assert [status for status, *_ in results.values()] == ["done"] * 2 * (2 + 2 * 2 * 2)
    assert len(folder.jobs()) == 4
    assert (
        folder.trained("ringnorm_drawn n=40 joint elbo")
        == folder.trained("twonorm_drawn n=40 joint elbo")
        == 1
    )
    assert folder.counts() == (20, 0)
    assert folder.status()["jobs"] == []
    assert folder.run(*words) == 0
    assert len(folder.jobs()) == 4, "what is done needs no new job"


def cancelled(folder: Folder, results: Results) -> None:
    """`scancel` of a block half way; the next run goes on from its checkpoint."""
    process, job = begun(folder, *SMALL, "wait=true")
    assert folder.status()["experiments"][0]["running"] == 2
    folder.slurm("scancel", job)
    assert folder.end(process) == 1
    for said in (f"job {job} of ", "CANCELLED", "2 of them without a record", f"{job}_0_log.out"):
        assert said in folder.output
    (known,) = folder.status()["jobs"]
    assert (known["job"], known["lost"], "CANCELLED" in known["state"]) == (job, 2, True)
    assert folder.counts() == (0, 2)
    process = folder.start(*SMALL, "wait=true")
    wait_until(lambda: len(folder.jobs()) == 2, "another job")
    (other,) = {*folder.jobs()} - {job}
    finishes(folder, process, results, job, other)
    assert resumed_at(folder.log(other))[0] > 0


def requeued(folder: Folder, results: Results) -> None:
    """`scontrol requeue`: the same job comes back, and `run` waits for it."""
    process, job = begun(folder, *SMALL)
    folder.slurm("scontrol", "requeue", job)
    states = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
    wait_until(lambda: "RUNNING" not in folder.slurm(*states), "the job has left its node")
    finishes(folder, process, results, job)
    assert resumed_at(folder.log(job))[0] > 0


def preempted(folder: Folder, results: Results) -> None:
    """A more urgent job takes the only GPU: SIGTERM, a grace time in which leaving would mean to be
    lost."""
    process, job = begun(folder, *SMALL, "hydra.launcher.partition=spare", launcher="slurm_gpu")
    folder.slurm(
        "srun", "--partition=urgent", "--gpus=1", "--ntasks=1", "--job-name=urgent", "sleep", "1"
    )
    finishes(folder, process, results, job)
    log = folder.log(job)
    assert "stopped by SIGTERM" in log
    assert f"Requeued job {job}" in log
    assert resumed_at(log)[0] > 0


def out_of_time(folder: Folder, results: Results) -> None:
    """Twice the time limit comes close once the block has made progress: it halts, is requeued and
    resumes there.

    The limit follows the block, not the clock: on a busy machine a fixed minute may end before the
    first step."""
    words = [*BLOCK, "training.binary.max_iterations=3000", "estimator.paused.pause=0.03"]
    process, job = begun(folder, *words, "hydra.launcher.timeout_min=30")
    reached: list[int] = []
    for halt in range(2):
        wait_until(
            lambda: folder.reached() > max(resumed_at(folder.log()), default=0),
            "a checkpoint with progress",
        )
        reached.append(folder.reached())
        minutes = int(
            folder.slurm("squeue", "--noheader", f"--jobs={job}", "--format=%M").split(":")[-2]
        )
        folder.slurm(
            "scontrol", "update", f"jobid={job}", f"timelimit={minutes + 2}"
        )  # the signal comes 2 ahead
        wait_until(lambda halt=halt: folder.log().count("Requeued job") > halt, "a halt")
        folder.slurm("scontrol", "update", f"jobid={job}", "timelimit=30")
        wait_until(lambda halt=halt: len(set(resumed_at(folder.log()))) > halt, "it has resumed")
    assert folder.end(process) == 0, folder.output
    assert folder.jobs() == [job]
    resumed = resumed_at(folder.log(job))
    assert resumed == sorted(resumed)
    assert all(at >= before for at, before in zip(sorted(set(resumed)), reached, strict=True)), (
        "nothing was lost"
    )
    assert [result.iterations for _, _, result, _ in comparable(folder.root).values()] == [3000] * 2


def raising(folder: Folder, results: Results) -> None:
    """A file, named relative to the current folder, that is gone when the job reads it."""
    table = folder.root.parent / "table.csv"
    table.write_text("\n".join(["a,b,y", *(f"{i % 7},{i % 11},{(i * i) % 2}" for i in range(400))]))
    words = [
        "dataset=csv,ringnorm_drawn", f"csv.path={table.name}", "csv.target=y", "csv.task=binary", "csv.name=table",
        "method=elbo", "sizes=[40]", "seeds=[0]", "training.binary.max_iterations=20", "device=cpu",
    ]  # fmt: skip
    process = folder.start(*words, "+hydra.launcher.additional_parameters.hold=true")
    wait_until(lambda: len(folder.jobs()) == 2, "two jobs are submitted")
    kept = table.rename(table.with_suffix(".kept"))
    bad = next(job for job in folder.status()["jobs"] if "dataset=csv" in job["block"])["job"]
    for job in folder.jobs():
        folder.slurm("scontrol", "release", job)
    assert folder.end(process) == 1
    ended = f"on {os.uname().nodename.partition('.')[0]}: ended (FAILED): dlmexp: "
    for said in (f"job {bad} of ", ended, table.name, f"{bad}_0_log.out"):
        assert said in folder.output
    (known,) = folder.status()["jobs"]
    assert (known["job"], known["lost"]) == (bad, 1)
    assert folder.counts() == (1, 1), "the other block finished"
    kept.rename(table)
    assert folder.run(*words) == 0, folder.output
    assert len(folder.jobs()) == 3, "only the block without a record was submitted again"
    assert folder.counts() == (2, 0)


def deserted(folder: Folder, results: Results) -> None:
    """The submitting process is killed; its job goes on, and a second run waits for that very
    job."""
    process, job = begun(folder, *SMALL)
    process.send_signal(signal.SIGKILL)
    folder.end(process)
    (known,) = folder.status()["jobs"]
    assert (known["job"], known["state"], known["lost"]) == (job, "running", 0)
    folder.slurm("scontrol", "suspend", job)  # so that it can't be over before the second run looks
    process = folder.start(*SMALL)
    wait_until(
        lambda: f"already in the queue: job {job}\n" in folder.output, "the second run has looked"
    )
    folder.slurm("scontrol", "resume", job)
    finishes(folder, process, results, job)
    assert resumed_at(folder.log(job)) == []


def left_alone(folder: Folder, results: Results) -> None:
    """wait=false, with more blocks than one array of this cluster may have."""
    words = [word for word in QUICK if not word.startswith("seeds=")] + [
        "seeds=[0],[1],[2],[3],[4]"
    ]
    hold = ["wait=false", "+hydra.launcher.additional_parameters.hold=true"]
    assert folder.run(*words, *hold) == 0, folder.output
    jobs = folder.jobs()
    assert len(jobs) == 5
    assert len({job.partition("_")[0] for job in jobs}) == 2, "the array had to be split"
    known = folder.status()
    assert [job["state"] for job in known["jobs"]] == ["pending (JobHeldUser)"] * 5
    assert known["experiments"][0]["queued"] == 10
    process = folder.start(*words)
    for job in jobs:
        folder.slurm("scontrol", "release", job)
    assert folder.end(process) == 0, folder.output
    assert folder.jobs() == jobs, "what is in the queue is not submitted again"
    assert folder.counts() == (10, 0)


def two_users(folder: Folder, results: Results) -> None:
    """Sweeps of two users that overlap, into one folder that belongs to their group, whose umask
    lets it write."""
    env = folder.env | {"HOME": "/nonexistent"}
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    env["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), packages])
    top = Path(tempfile.mkdtemp(dir=os.environ["DLMEXP_SLURM_SANDBOX"]))
    top.chmod(0o755)
    shared = top / "results"
    shared.mkdir()
    shutil.chown(shared, group="users")
    shared.chmod(0o2775)
    users = []
    for name in ("games", "nobody"):
        # `sh` in between: what setpriv starts itself may be read with the rights of root.
        switch = ["setpriv", f"--reuid={name}", "--regid=users", "--clear-groups"]
        switch += ["sh", "-c", 'umask 002; exec "$@"', "sh"]
        python = next(
            (p for p in (sys.executable, "/usr/bin/python3") if _imports(switch, p, env)), None
        )
        if python is None:
            pytest.skip(f"no Python that user {name} may start can import dlmexp")
        users.append(
            Folder(
                shared,
                env | {"USER": name, "LOGNAME": name},
                [*switch, python, "-m", "dlmexp"],
                name,
            )
        )
    one, other = users
    quick = [word for word in QUICK if not word.startswith("method=")]
    first, second = (
        one.start(*quick, "method=elbo,joint_log_dlm"),
        other.start(*quick, "method=joint_log_dlm,fitc_not"),
    )
    assert other.end(second) == 2, "a mistake of one user leaves the other alone"
    second = other.start(*quick, "method=joint_log_dlm,fixed_log_dlm")
    assert one.end(first) == 0, one.output
    assert other.end(second) == 0, other.output
    assert one.counts() == other.counts() == (5, 0)
    assert one.trained("ringnorm_drawn n=40 joint log_dlm") == 1
    assert one.trained("ringnorm_drawn n=40 joint elbo") == 1
    owners = {path.owner() for path in shared.glob("records/*/*.json")}
    assert owners == {"games", "nobody"}
    shutil.rmtree(top)


def _imports(switch: list[str], python: str, env: dict[str, str]) -> bool:
    words = [*switch, python, "-c", "import torch, dlmexp.experiment.cluster.multirun"]
    return subprocess.run(words, env=env, cwd="/", capture_output=True).returncode == 0


SCENARIOS: list[Scenario] = [
    out_of_time, sweep, cancelled, requeued, preempted, raising, deserted, left_alone, two_users,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[each.__name__ for each in SCENARIOS])
def test_scenario(finished: Callable[[Scenario], None], scenario: Scenario):
    finished(scenario)
