"""What is said of a user's own table before anything is trained."""

import numpy as np
import pytest

from dlmexp.plan.compose import compose
from dlmexp.plan.shorthand import spelled_out
from dlmexp.running.own_tables import what_was_read
from dlmexp.running.sweep import prepare_sweep


def _table(path, rows, seed):
    rng = np.random.default_rng(seed)
    values = np.column_stack([rng.normal(size=(rows, 2)), np.arange(rows) // 30, rng.normal(size=rows)])
    np.savetxt(path, values, delimiter=",", header="a,b,house,y", comments="")


@pytest.fixture
def said(tmp_path):
    _table(tmp_path / "some.csv", 600, 0)
    _table(tmp_path / "others.csv", 50, 1)

    def of(*words):
        own = ["dataset=csv", f"csv.path={tmp_path}/some.csv", "csv.target=y", "csv.task=regression", "method=[elbo]"]
        return what_was_read(prepare_sweep(compose(spelled_out([*own, *words]))))

    return of


def test_rows_of_groups_that_would_be_in_two_parts_are_counted(said):
    first, _, divided = said("csv.split=group", "csv.by=house")
    assert "600 rows of some.csv, 2 features" in first
    parts = "402 rows for training, 48 for validation, 120 for testing, 30 not used, as no group is in two parts; n ="
    assert f"divided by 20 groups (house): {parts}" in divided


def test_rows_of_each_file_are_counted(said, tmp_path):
    first, _, divided = said(f"csv.test={tmp_path}/others.csv")
    assert "600 rows of some.csv and 50 of others.csv, 3 features" in first
    assert "536 rows for training, 64 for validation, 50 of your own for testing; n =" in divided
