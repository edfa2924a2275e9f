"""`dlmexp run` in this process: what is planned, refused, interrupted and kept."""

import os
import re
import shlex
import signal

import pytest

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.data.dataset import as_spec
from dlmexp.experiment.models.file import decoded
from dlmexp.experiment.plan.compose import compose
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import MODEL, Store
from dlmexp.experiment.running import run as module
from dlmexp.experiment.running.clock import Clock, TimeInterval
from dlmexp.experiment.running.process import BUDGET_SPENT
from dlmexp.experiment.running.progress import Progress
from dlmexp.experiment.running.run import execute, make_folder
from tests.support.processes import comparable

pytestmark = pytest.mark.slow


def test_plan_says_how_long_the_run_takes_and_writes_nothing(here, tiny, capsys, monkeypatch):
    monkeypatch.setattr(Clock, "is_short", lambda *_: False)
    monkeypatch.setattr(module, "HOUR", 0.0)
    assert execute(compose([*tiny, "plan=true", "batch_cells=4"]), [*tiny, "plan=true"]) == 0
    *_, counts, bound, advice = capsys.readouterr().out.splitlines()
    assert counts == "18 cells: 0 done, 0 failed, 18 to run in 6 batches"
    assert re.fullmatch(r"18 cells in 6 batches: \S+ (s|min|h) to \S+ (s|min|h)", bound)
    assert advice.endswith(shlex.join(["dlmexp", "run", *tiny, "preset=quick"]))
    assert list(here.iterdir()) == []


def test_interrupted_run_ends_with_the_command_that_continues_it(here, tiny, capsys, monkeypatch):
    finished = Progress.note_record
    counts = []

    def interrupt_after_two(self, record):
        finished(self, record)
        counts.append((self.settled, self.total))
        if len(counts) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Progress, "note_record", interrupt_after_two)
    assert execute(compose([*tiny, "batch_cells=2"]), [*tiny, "name=a b"]) == 128 + signal.SIGTERM
    *_, stopped, last = capsys.readouterr().out.splitlines()
    assert stopped == "stopped by SIGTERM; 16 cells to do"
    command = last.removeprefix("everything is saved, continue with: ")
    assert shlex.split(command) == ["dlmexp", "run", *tiny, "name=a b"]
    before = {path: path.stat().st_mtime_ns for path in here.glob("results/records/*/*.json")}
    assert main(["run", *tiny, "budget=0.001s"]) == BUDGET_SPENT
    assert execute(compose([*tiny, "batch_cells=2"])) == 0
    assert counts[-1] == (16, 16)
    assert "18 of 18 cells done, 0 failed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.fixture
def plan_lines(tiny, capsys, monkeypatch):
    """Returns the lines that `plan=true` announces for a run of so many seconds at most."""

    def announce(seconds, *words, **options):
        interval = TimeInterval(seconds / 3, seconds) if seconds else None
        monkeypatch.setattr(Clock, "is_short", lambda *_: seconds is None)
        monkeypatch.setattr(Clock, "time_steps", lambda *_: None)
        monkeypatch.setattr(Clock, "expected_interval", lambda *_: interval)
        typed = [*tiny, *words, "plan=true"]
        assert execute(compose(typed), typed, **options) == 0
        lines = capsys.readouterr().out.splitlines()
        start = [i for i, line in enumerate(lines) if " to run in " in line][-1]
        return lines[start + 1 :]

    return announce


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (None, "18 cells in 3 batches"),
        (0.0, "18 cells in 3 batches"),
        (600.0, "18 cells in 3 batches: 3 min to 10 min"),
    ],
)
def test_expected_time_is_announced_unless_the_run_is_short(here, plan_lines, seconds, expected):
    assert plan_lines(seconds) == [expected]


def test_run_of_more_than_an_hour_comes_with_a_shorter_command(here, tiny, plan_lines):
    _, advice = plan_lines(3601.0)
    assert advice.endswith(shlex.join(["dlmexp", "run", *tiny, "preset=quick"]))
    assert len(plan_lines(3600.0)) == 1


def test_shorter_command_of_a_quick_run_has_a_budget(here, plan_lines):
    _, advice = plan_lines(3601.0, "preset=quick")
    assert advice.endswith(" preset=quick budget=30min")


@pytest.mark.parametrize(
    ("seconds", "words", "choose_workers", "announced"),
    [
        (600.0, [], True, ", 5 processes: "),
        (600.0, [], False, " batches: "),
        (None, [], True, "batches"),
        (600.0, ["workers=3"], True, ", 3 processes: "),
    ],
)
def test_number_of_workers_is_chosen_on_request_for_long_runs(
    here, plan_lines, monkeypatch, seconds, words, choose_workers, announced
):
    monkeypatch.setattr(module.process, "default_worker_count", lambda *_: 5)
    line = plan_lines(seconds, *words, choose_workers=choose_workers)[0]
    assert line.partition(": ")[0].endswith(announced.removesuffix(": "))


def test_folder_that_can_not_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="can't write there"):
        make_folder(tmp_path / "file")


def test_folder_with_a_reserved_name_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "records").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        make_folder(tmp_path / "results")


def test_error_of_the_disk_is_one_line_and_a_failure(here, tiny, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "results/file")

    monkeypatch.setattr(module, "write_manifests", full)
    assert execute(compose(tiny), tiny) == 1
    assert capsys.readouterr().err == (
        "dlmexp: can't read or write 'results/file': No space left on device; "
        "what is finished is safe, the same command goes on from there\n"
    )


def model_files(folder: str) -> set[str]:
    """Return the keys with a sound model, which is that of the record."""
    store = Store(folder)
    files = store.model_files()
    records = {record.key: record for record in store.own_records()}
    for key, paths in files.items():
        written = store.attachment(records[key].cell.dataset, key, MODEL, records[key].model)
        assert len(paths) == 1
        assert decoded(written).cell == records[key].cell
    return set(files)


def test_record_has_the_spec_that_its_data_was_loaded_by(here, tiny):
    cfg = compose(tiny)
    assert execute(cfg, tiny) == 0
    (spec,) = cfg.dataset.values()
    specs = [record.dataset_spec for record in Store("results").own_records()]
    assert specs
    assert all(values is not None and as_spec(values) == as_spec(spec) for values in specs)


WORDS = ["method=[joint_log_dlm]", "beta.values=[10,1]"]  # with two seeds


@pytest.mark.parametrize(("keep", "count"), [("selected", 2), ("all", 4), ("none", 0)])
def test_models_of_the_selected_cells_all_or_none_are_kept(here, tiny, keep, count):
    assert main(["run", *tiny, *WORDS, f"keep={keep}"]) == 0
    assert len(model_files("results")) == count
    if keep == "selected":
        assert model_files("results") == set(ResultsFolder("results").table["key"])


def test_records_do_not_depend_on_which_models_are_kept(here, tiny):
    for keep in ("selected", "all", "none"):
        assert main(["run", *tiny, *WORDS, f"results={keep}", f"keep={keep}"]) == 0
    assert comparable(here / "selected") == comparable(here / "all") == comparable(here / "none")


def test_runs_that_know_nothing_of_each_other_keep_the_models_of_each(here, tiny):
    for betas in ("10", "1", "10,1"):
        assert main(["run", *tiny, *WORDS, f"beta.values=[{betas}]"]) == 0
    assert len(model_files("results")) == 4
