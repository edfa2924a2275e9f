"""A results folder in which something else stands in the place of a file: a pipe, a link to a device,
a link out of the folder, a folder.

No command hangs, takes the memory of the machine, shows what lies outside, or ends in a traceback.
"""

import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlmexp.cli import main
from dlmexp.experiment.records.results import collect_packed
from tests.support.jobs import submit_job

RUN = [
    "run", "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=60", "dataset.ringnorm_drawn.M=3",
    "sizes=[10]", "seeds=[0,1]", "method=[elbo]", "beta=list", "beta.values=[1]", "device=cpu", "evaluate=1",
    "keep=all", "training.binary.max_iterations=2",
]  # fmt: skip
FILES = {  # by kind: where it lies
    "record": "records/*/*.json",
    "arrays": "records/*/*[!l].npz",
    "model": "records/*/*.model.npz",
    "manifest": "*/cells/*.json",
    "checksum of data": "data/*.json",
    "process": "running/host-1.json",
    "lease": "running/host-1.lease",
    "log of a process": "running/process-2.log",
    "checkpoint": "checkpoints/*.npz",
    "pack": "packed.parquet",
    "baselines": "baselines.csv",
    "seconds": "predict_seconds.csv",
    "submission": "multirun/*/jobs/*/submitted.json",
    "log of a job": "multirun/*/jobs/*/*.out",
}
MEMORY = 3 << 30  # bytes of address space on top of what this process has
SECONDS = 60  # a command that takes longer hangs
SECRET = "what lies outside of the folder"


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A results folder that has a file of every kind."""
    folder = tmp_path_factory.mktemp("sound") / "results"
    assert main([*RUN, f"results={folder}"]) == 0
    collect_packed(str(folder), str(folder / "packed.parquet"))
    job = submit_job(folder, "7", "key")
    (job / "7_0_log.out").write_text("trained\n")
    (folder / "running").mkdir(exist_ok=True)
    (folder / "checkpoints").mkdir(exist_ok=True)
    for name in ("running/host-1.json", "running/host-1.lease"):
        (folder / name).write_text('{"host": "h", "pid": 1}')
    (folder / "running" / "process-2.log").write_text("trained\n")
    (folder / "checkpoints" / "0.npz").write_bytes(b"torn")
    (folder / "baselines.csv").write_text("method,dataset,n,seed,test_nll\nx,y,10,0,1.0\n")
    (folder / "predict_seconds.csv").write_text("dataset,M,predict_seconds\nx,3,1.0\n")
    return folder


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def link_outside(path: Path) -> None:
    path.symlink_to(os.environ["SECRET_FILE"])


def folder(path: Path) -> None:
    path.mkdir()


@contextmanager
def limits() -> Iterator[None]:
    """Bound the time and the memory of what runs inside."""

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, before[1]))
    handler = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "replace",
    [pipe, device, link_outside, folder],
)
@pytest.mark.parametrize("kind", FILES)
def test_no_command_hangs_or_crashes_on_what_is_no_file(
    sound, tmp_path, monkeypatch, capfd, kind: str, replace: Callable[[Path], None]
):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    monkeypatch.setenv("SECRET_FILE", str(secret))
    results = tmp_path / "results"
    shutil.copytree(sound, results)
    victims = list(results.glob(FILES[kind]))
    assert victims
    for victim in victims:
        victim.unlink()
        replace(victim)
    commands = [["status", "--failed"], ["logs", "7"], ["cancel", "--yes"], ["collect"]]
    with limits():
        for words in commands:
            assert main([*words, "--results", str(results)]) in (0, 2), words
        assert main([*RUN, f"results={results}"]) in (0, 1, 2)
    printed = "".join(capfd.readouterr())
    assert "Traceback" not in printed
    assert SECRET not in printed
    assert secret.read_text() == SECRET


def test_run_replaces_a_pipe_in_the_place_of_its_manifest(sound, tmp_path, capfd):
    results = tmp_path / "results"
    shutil.copytree(sound, results)
    (manifest,) = results.glob("*/cells/*.json")
    content = manifest.read_bytes()
    manifest.unlink()
    os.mkfifo(manifest)
    with limits():
        assert main([*RUN, f"results={results}"]) == 0
    assert manifest.read_bytes() == content


def test_folder_in_the_place_of_a_manifest_is_to_be_moved_away(sound, tmp_path, capfd):
    results = tmp_path / "results"
    shutil.copytree(sound, results)
    (manifest,) = results.glob("*/cells/*.json")
    manifest.unlink()
    manifest.mkdir()
    assert main([*RUN, f"results={results}"]) == 1
    said = capfd.readouterr().err
    assert str(manifest) in said
    assert "move that away, then the same command goes on" in said


@pytest.mark.parametrize("job", ["../../../../secret", "7/../../../../../secret", "7"])
def test_logs_show_nothing_outside_of_the_folder(tmp_path, capfd, job):
    """Neither a forged id of a job nor a link to a folder leads out of it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("secret_0_log.out", "7_0_log.out"):
        (outside / name).write_text(SECRET)
    results = tmp_path / "results"
    submission = submit_job(results, "7", "key") / "submitted.json"
    text = submission.read_text().replace('"id":"7"', f'"id":"{job}"')
    assert f'"{job}"' in text
    (outside / "submitted.json").write_text(text)
    shutil.rmtree(submission.parent)
    submission.parent.symlink_to(outside)
    (tmp_path / "secret_0_log.out").write_text(SECRET)
    main(["logs", "--results", str(results), job])
    assert SECRET not in "".join(capfd.readouterr())


def test_long_log_is_shown_from_its_end(tmp_path, capfd):
    folder = submit_job(tmp_path, "7", "key")
    (folder / "7_0_log.out").write_text("first line\n" + "middle line\n" * 500_000 + "last line\n")
    assert main(["logs", "--results", str(tmp_path), "7"]) == 0
    said = capfd.readouterr().out
    assert "first line" not in said
    assert said.endswith("last line\n")
    assert "bytes are left out" in said
