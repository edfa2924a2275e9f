"""Output for people: text that does not command the terminal, tables that fit, counts."""

import io
import re
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from dlmexp.cli import main
from dlmexp.common.console import (
    budget_seconds,
    counted,
    duration,
    print_table,
    raw_stream,
    sanitized,
    sanitized_output,
    wide_console,
)
from dlmexp.common.errors import UserError
from dlmexp.experiment.records.manifests import read_manifests, write_manifest
from dlmexp.experiment.records.store import Store

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\rgone\u202e[link=file:///x]here[/link][/red]"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # that a console of ours writes by itself
CONTROLS = {chr(code) for code in (*range(32), *range(0x7F, 0xA0))} - {"\n", "\t"}
# Left-to-right and right-to-left embedding, their end, and overrides; isolates, and their end.
BIDIRECTIONAL = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("character", sorted(CONTROLS | BIDIRECTIONAL))
def test_character_that_commands_a_terminal_is_replaced(character):
    assert sanitized(f"a{character}b") == "a?b"


@pytest.mark.parametrize(
    "text", ["\n\t ~", "é", "\xa0", "\u2029", "\u202f", "\u2065", "\u206a", "β̂"]
)
def test_other_characters_stay(text):
    assert sanitized(text) == text


@pytest.mark.slow
@given(st.one_of(st.text(), st.sampled_from([EVIL, "\r"])))
def test_nothing_that_is_printed_commands_the_terminal(text):
    screen = Terminal()
    with redirect_stdout(screen), redirect_stderr(screen), sanitized_output():
        print(text, text, sep="\n", file=sys.stderr)
        table = Table("name", title=text)
        table.add_row(text)
        wide_console().print(table, text, style="red")
    shown = COLOURS.sub("", screen.getvalue())
    assert not (CONTROLS | BIDIRECTIONAL) & set(shown)


def test_markup_is_printed_as_text():
    screen = Terminal()
    with redirect_stdout(screen):
        wide_console().print("[red]text[/red] :smile:")
    assert COLOURS.sub("", screen.getvalue()) == "[red]text[/red] :smile:\n"


def test_data_can_be_written_to_the_raw_stream():
    screen = io.StringIO()
    with redirect_stdout(screen), sanitized_output():
        raw_stream(sys.stdout).write("\x1b")
        with sanitized_output():
            raw_stream(sys.stdout).write("\x1b")
    assert screen.getvalue() == "\x1b\x1b"
    assert raw_stream(screen) is screen


@pytest.mark.parametrize(("columns", "width"), [(None, 140), ("60", 60)])
def test_console_in_a_pipe_is_as_wide_as_columns_or_our_tables(monkeypatch, columns, width):
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    with redirect_stdout(io.StringIO()):
        assert wide_console().width == width


@pytest.mark.slow
def test_records_of_a_stranger_command_no_terminal(here, tiny, capsys):
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2.0 h"),
        (12240, "3.4 h"),
    ],
)
def test_duration_has_a_unit_of_its_size(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "cell", "0 cells"),
        (1, "batch", "1 batch"),
        (3, "batch", "3 batches"),
        (4, "process", "4 processes"),
        (2, "bench", "2 benches"),
    ],
)
def test_noun_follows_its_number(number, noun, text):
    assert counted(number, noun) == text


@pytest.mark.parametrize(
    ("budget", "seconds"),
    [(None, None), ("90s", 90), ("25min", 1500), ("1.5h", 5400), (" 0.5 s ", 0.5)],
)
def test_budget_is_read_in_seconds(budget, seconds):
    assert budget_seconds(budget) == seconds


@pytest.mark.parametrize("budget", ["", "90", "5m", "-1s", "1.h", "1h30min"])
def test_budget_that_is_no_duration_is_refused(budget):
    with pytest.raises(UserError, match="write it as 90s, 25min or 2h"):
        budget_seconds(budget)


def test_columns_with_one_value_go_below_a_table_that_is_too_wide():
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


def test_table_that_fits_keeps_all_columns():
    file = io.StringIO()
    table = Table("name", "kind")
    table.add_row("one", "same")
    table.add_row("two", "same")
    print_table(Console(file=file, width=40), table)
    assert "in every row" not in file.getvalue()
    assert "kind" in file.getvalue()


def test_long_words_go_on_in_the_next_line():
    file = io.StringIO()
    table = Table("name", "value", pad_edge=False)
    table.add_row("x" * 30, "1")
    table.add_row("y" * 30, "2")
    print_table(Console(file=file, width=20), table)
    assert file.getvalue().count("x") == 30
    assert max(len(line) for line in file.getvalue().splitlines()) <= 20
