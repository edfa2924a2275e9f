"""What a run says about a user's own table."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from dlmexp.data.schema import Column, Schema
from dlmexp.data.splits import Arrangement, split
from dlmexp.experiment.running.table_notes import table_notes
from tests.support.cells import PLAIN

CELLS = [replace(PLAIN, n=n, M=M) for n, M in ((100, 20), (50, 10), (50, 20))]


def notes(**changes) -> list[str]:
    """Return the notes about a table of 200 rows."""
    values: dict[str, Any] = {
        "name": "mine",
        "X": np.zeros((200, 3)),
        "y": np.linspace(0.0, 10.0, 200),
        "task": "regression",
        "schema": Schema("price", (Column("rooms"), Column("a, b"))),
        "facts": {"file": "table.csv", "left_out": [], "warnings": []},
        "arrangement": Arrangement(),
    }
    spec: Any = SimpleNamespace(split="regression", test_cap=30, validation="all")
    data: Any = SimpleNamespace(**values | changes)
    return table_notes(spec, data, CELLS)


def test_rows_features_target_and_sizes_are_noted():
    rows = split(200, "regression", 0)
    first, second, third = notes()
    assert first == (
        "mine: 200 rows of table.csv, 2 columns of features: rooms (number), 'a, b' (number)"
    )
    assert second == "  target price: 0 to 10, mean 5"
    assert third == (
        f"  divided at random: {len(rows.train)} rows for training, "
        f"{len(rows.validation)} for validation, 30 for testing, 20 rows not used; "
        "n = 50, 100; M = 10, 20"
    )


def test_logarithm_of_the_target_is_noted():
    assert "  target log(price): " in notes(schema=Schema("price", (), log=True))[1]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("no", "yes"), "class 1 is 'yes' (3 rows), class 0 is 'no' (197 rows)"),
        (None, "class 1 is '1' (3 rows), class 0 is '0' (197 rows)"),
    ],
)
def test_classes_are_named_and_counted(labels, expected):
    y = (np.arange(200) < 3).astype(float)
    assert expected in notes(task="binary", y=y, schema=Schema("price", (), labels=labels))[1]


@pytest.mark.parametrize(("count", "more"), [(12, ""), (13, ", 1 more"), (20, ", 8 more")])
def test_twelve_columns_are_named(count, more):
    columns = tuple(Column(f"x{i}") for i in range(count))
    first = notes(schema=Schema("price", columns))[0]
    assert first.endswith(f"x11 (number){more}")


def test_missing_values_are_counted_by_row():
    X = np.zeros((200, 3))
    X[:2] = np.nan
    X[5, 1] = np.nan
    assert notes(X=X)[3] == (
        "  3 rows with missing numbers, which get the mean of the training rows"
    )


def test_columns_left_out_and_warnings_are_noted():
    facts = {"file": "table.csv", "left_out": ["id", "date"], "warnings": ["odd", "strange"]}
    assert notes(facts=facts)[3:] == [
        "  left out: id, date",
        "  warning: odd",
        "  warning: strange",
    ]


def test_rows_that_are_divided_by_time_are_noted():
    arrangement = Arrangement("time", by=np.arange(200.0), column="year")
    assert notes(arrangement=arrangement)[2].startswith("  divided by time (year): ")


def test_every_row_is_in_a_part_or_counted_as_not_used():
    groups = np.repeat(np.arange(20.0), 10)
    arrangement = Arrangement("group", by=groups, column="house")
    numbers = [int(word) for word in notes(arrangement=arrangement)[2].split() if word.isdigit()]
    train, validation, test, unused = numbers[:4]
    assert "rows not used (their group would be in two parts)" in notes(arrangement=arrangement)[2]
    assert train + validation + test + unused == 200
    assert unused > 0
