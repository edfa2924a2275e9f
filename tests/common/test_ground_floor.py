"""The ground floor: atomic files, commands with their folder, things made by several processes;
text that does not command the terminal, tables that fit."""

import io
import os
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from dlmexp.cli import main
from dlmexp.common import atomic
from dlmexp.common.atomic import is_dead, owner, replacing, write_atomically, writer_of
from dlmexp.common.console import (
    budget_seconds,
    duration,
    print_table,
    sanitized_output,
    wide_console,
)
from dlmexp.common.errors import UserError, nearest
from dlmexp.common.literals import with_results_option
from dlmexp.common.processes import map_in_processes
from dlmexp.experiment.records.store import Store, read_manifests, write_manifest


def test_a_file_appears_at_the_end_and_unfinished_ones_name_their_writer(tmp_path):
    path = tmp_path / "new" / "file.csv"
    write_atomically(path, b"old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert writer_of(temporary) == owner()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]
    assert writer_of(path) is None
    dead = f"{atomic.machine()}-999999999"
    assert [is_dead(writer) for writer in (owner(), dead, "elsewhere-1")] == [False, True, None]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_commands_go_on_with_a_folder():
    assert (
        with_results_option("dlmexp run experiment=bias", Path("./results"))
        == "dlmexp run experiment=bias"
    )
    assert (
        with_results_option("dlmexp --plugins own run", "my own")
        == "dlmexp --plugins own run 'results=my own'"
    )
    assert with_results_option("dlmexp data list", "elsewhere") == "dlmexp data list"


@pytest.mark.parametrize("cores", [1, 2])
def test_several_processes_make_things_in_order_and_hand_back_what_one_raises(monkeypatch, cores):
    monkeypatch.setattr("dlmexp.common.processes.available_cores", lambda: cores)
    here = os.getpid()

    def make(number: int) -> tuple[int, bool]:
        if number == 4:
            raise UserError("four")
        return number**2, os.getpid() == here

    made = map_in_processes(make, range(5))
    assert [next(made) for _ in range(4)] == [(number**2, cores == 1) for number in range(4)]
    with pytest.raises(UserError, match="four"):
        next(made)


EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\rgone\u202e[link=file:///x]here[/link][/red]"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # what a console of ours writes by itself


class Terminal(io.StringIO):
    def isatty(self):
        return True


@given(st.one_of(st.text(), st.sampled_from([EVIL, "\r"])))
def test_no_text_commands_the_terminal(text):
    screen = Terminal()
    with redirect_stdout(screen), redirect_stderr(screen), sanitized_output():
        print(text, text, sep="\n", file=sys.stderr)
        table = Table("name", title=text)
        table.add_row(text)
        wide_console().print(table, text, style="red")
    shown = COLOURS.sub("", screen.getvalue())
    assert not {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0)), "\u202e"} - {"\n", "\t"} & set(
        shown
    )
    if text == EVIL:
        assert shown.count("[/red]") >= 4, "it is text, not markup"


@pytest.mark.slow
def test_records_of_a_stranger(here, tiny, capsys):
    """All that commands print in a folder whose records and manifest hold such texts."""
    store = Store("results")
    assert main(["run", *tiny, "method=[elbo]", "name=one"]) == 0
    for path in store.records.glob("*/*.json"):
        record = store.read(path)
        assert record is not None
        made = replace(record.made, **dict.fromkeys(("host", "command", "device", "version"), EVIL))
        path.unlink()
        store.write(
            replace(
                record,
                made=made,
                result=replace(record.result, reason=EVIL, note=EVIL),
                status="failed",
            )
        )
    (asked,) = read_manifests(store.root)
    changed = dict.fromkeys(("method", "label", "experiment", "role"), EVIL)
    groups = [
        replace(g, **changed, keys=(*g.keys, "0" * 20), betas=(*g.betas, 2.0))
        for g in asked.candidates
    ]
    write_manifest(store.root, replace(asked, candidates=groups))
    capsys.readouterr()
    for command in (
        "status --failed --missing",
        "logs",
        "collect",
        "predict x.csv",
        "plot default",
        "claims",
    ):
        assert main(command.split()) in (0, 2)
    said = "".join(capsys.readouterr())
    assert "gone" in said
    assert not {"\x1b", "\x07", "\x9b", "\r", "\u202e"} & set(said)


def test_times_and_the_nearest_word():
    assert [duration(seconds) for seconds in (90, 7199, 12240)] == ["90 s", "120 min", "3.4 h"]
    assert [budget_seconds(text) for text in ("25min", "1.5h")] == [1500, 5400]
    assert nearest("--M", ["m=", "size="]) == "did you mean m=?"


def test_a_table_fits_a_narrow_console():
    """What is the same in every row goes below, from the last column on, until the rest fits, with
    whole headers."""
    file = io.StringIO()
    table = Table("name", "kind", "same", "left", "right", pad_edge=False)
    for name in ("one", "two"):
        table.add_row(name, "the same kind", "as before", name, name)
    print_table(Console(file=file, width=40), table)
    *lines, last = file.getvalue().splitlines()
    assert last == "in every row: same as before"
    assert max(map(len, lines)) <= 40
    assert lines[1].replace("┃", " ").split() == ["name", "kind", "left", "right"]
    assert "the same kind" in file.getvalue()
