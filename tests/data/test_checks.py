"""Each check fails on what it should, and says what was found."""

import numpy as np
import pytest

from dlmexp.data.checks import DataMismatch, check
from dlmexp.data.parsers.registry import Parsed
from dlmexp.data.spec import DatasetSpec, Task


def checked(X, y, task: Task = "regression", rows=None, features=None, **checks):
    spec = DatasetSpec("made_up", "none", task, "counts", rows=rows, features=features, options={"checks": checks})
    check(Parsed(np.asarray(X, dtype=float), np.asarray(y, dtype=float)), spec)


X = np.arange(12.0).reshape(4, 3)
Y = np.array([0.0, 1.0, 1.0, 0.0])


def test_good_data_passes():
    checked(X, Y, "binary", 4, 3, positives=2, positive_share=[0.4, 0.6], x_range={1: [0, 9]})
    checked(X, Y + 3, "count", y_range=[3, 4], y_mean=3.5)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("'shape' failed: .*found \\(4, 3\\) and \\(3,\\)", {"y": Y[:3]}),
        ("'rows' failed: expected some, found none", {"X": X[:0], "y": Y[:0], "task": "binary"}),
        ("'rows' failed: expected 5, found 4", {"rows": 5}),
        ("'features' failed: expected 2, found 3", {"features": 2}),
        ("'features' failed: expected at least one", {"X": np.zeros((4, 0))}),
        ("'finite' failed: the target of row 3 is nan", {"y": [0, 1, np.nan, 1]}),
        ("'finite' failed: row 2, feature 3 is inf", {"X": np.where(X == 5, np.inf, X)}),
        ("'finite' failed: row 2, feature 3 is nan", {"X": np.where(X == 5, np.nan, X)}),
        ("'finite' failed: row 1, feature 1 is -1e\\+200", {"X": np.where(X == 0, -1e200, X)}),
        ("'labels' failed: expected 0 and 1, found 2 in row 4", {"y": [0, 1, 1, 2], "task": "binary"}),
        ("'labels' failed: expected two classes, found only 1", {"y": [1, 1, 1, 1], "task": "binary"}),
        ("'counts' failed: .*found 1.5 in row 2", {"y": [0, 1.5, 1, 2], "task": "count"}),
        ("'counts' failed: .*found -1 in row 1", {"y": [-1, 1, 1, 2], "task": "count"}),
        ("'class balance' failed: expected 3 positive rows, found 2", {"task": "binary", "positives": 3}),
        ("'class balance' failed: expected a share of 0.6 to 0.7 .*found 0.5", {"positive_share": [0.6, 0.7]}),
        ("'target range' failed: expected 0 to 0.5, found 0 to 1", {"y_range": [0, 0.5]}),
        ("'target mean' failed: expected 0.6, found 0.5", {"y_mean": 0.6}),
        ("'range of feature 2' failed: expected 0 to 9, found 1 to 10", {"x_range": {2: [0, 9]}}),
    ],
)
def test_a_failed_check_is_named_with_both_values(message, arguments):
    with pytest.raises(DataMismatch, match=f"dataset 'made_up': check {message}"):
        checked(**({"X": X, "y": Y} | arguments))
