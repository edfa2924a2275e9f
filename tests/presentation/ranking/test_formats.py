"""Scores of splits in the formats of other leaderboards."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.presentation.ranking.formats import (
    COLUMN_MEANINGS,
    as_bencheval,
    as_benchopt,
    as_scores,
    names_of_rows,
)
from dlmexp.presentation.ranking.splits import scores_of_splits
from tests.support.cells import ELBO, candidates, fill
from tests.support.tidy import Made, fits

THREE = ("pol", "song", "cadata")


def made(means, datasets=("pol", "song"), **more):
    rows = []
    for dataset in datasets:
        for method, mean in means.items():
            for row in fits(dataset, method, mean, sizes=(100,), seeds=3, **more):
                rows.append(row | {"test_crps": 2 * row["test_nll"], "test_coverage_95": 0.9})
    return rows


@pytest.fixture
def scores():
    rows = made({"elbo": 0.5, "fitc": 0.3}) + made({"elbo": 0.7}, changes={"M": 50}, M=50)
    ridge = {"method": "ridge", "n": 100, "trained_by": "sklearn", "test_nll": 1.0, "seconds": 0.1}
    theirs = [ridge | {"dataset": "pol", "seed": seed} for seed in range(3)]
    return scores_of_splits(Made(rows, baselines=theirs))


def test_settings_are_part_of_a_name_where_several_rows_have_it(scores):
    assert set(names_of_rows(scores)) == {"elbo[]", "elbo[M=50]", "fitc", "ridge"}


def test_scores_have_a_row_per_method_data_set_split_and_metric(scores):
    table = as_scores(scores)
    assert list(table) == list(COLUMN_MEANINGS)
    assert not table.duplicated(["method", "dataset", "split", "metric"]).any()
    of_elbo = table.query("method == 'elbo[]' and dataset == 'pol' and split == 1")
    values = of_elbo.set_index("metric")["value"]
    assert set(values.index) == {"nll", "crps", "coverage_95", "seconds"}
    assert values["crps"] == pytest.approx(2 * values["nll"])
    assert values["coverage_95"] == 0.9
    assert set(table.query("method == 'ridge'")["metric"]) == {"nll", "seconds"}


def test_bencheval_has_its_columns_and_a_complete_table(scores):
    table = as_bencheval(scores, "crps")
    assert list(table) == ["method", "task", "seed", "metric_error", "time_train_s", "time_infer_s"]
    assert not table.isna().any(axis=None)
    counts = table.groupby("method").size()
    assert (counts == 2 * 3).all()


def test_bencheval_leaves_out_what_not_all_methods_have():
    rows = made({"elbo": 0.5, "fitc": 0.3}, THREE) + made({"exact": 0.1}, ["pol"])
    rows = [row for row in rows if (row["method"], row["seed"]) != ("fitc", 2)]
    table = as_bencheval(scores_of_splits(Made(rows)), "crps")
    assert set(table["method"]) == {"elbo", "fitc"}
    assert set(table["seed"]) == {0, 1}


def test_benchopt_has_a_column_per_metric(scores):
    table = as_benchopt(scores)
    needed = {"objective_name", "solver_name", "dataset_name", "idx_rep", "stop_val", "time"}
    assert needed <= set(table)
    assert not table.duplicated(["solver_name", "dataset_name", "idx_rep"]).any()
    assert np.isfinite(table["objective_nll"]).all()


@pytest.fixture
def folder(tmp_path):
    cells = [replace(ELBO, seed=seed) for seed in range(3)]
    fill(tmp_path, *[candidates("elbo", [cell]) for cell in cells])
    return tmp_path


def test_command_writes_scores_and_describes_them(folder, capsys):
    assert main(["collect", "--as", "scores", "--results", str(folder)]) == 0
    table = pd.read_parquet(folder / "scores.parquet")
    assert set(table["metric"]) == {"nll", "error", "seconds"}
    assert main(["collect", "--as", "croissant", "--results", str(folder)]) == 0
    about = json.loads((folder / "croissant.json").read_text())
    (file,) = about["distribution"]
    content = (folder / "scores.parquet").read_bytes()
    assert file["sha256"] == hashlib.sha256(content).hexdigest()
    columns = [field["source"]["extract"]["column"] for field in about["recordSet"][0]["field"]]
    assert columns == list(table)


def test_written_scores_are_no_records(folder):
    for form in ("scores", "benchopt"):
        assert main(["collect", "--as", form, "--results", str(folder)]) == 0
    assert main(["collect", "--results", str(folder)]) == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--as", "croissant"], "--as scores"),
        (["--as", "scores", "--metric", "crps"], "leave --metric out"),
        (["--as", "scores", "--csv"], "leave other options out"),
        (["--metric", "crps"], "needs --as bencheval"),
        (["--as", "bencheval"], "no result has this metric"),
    ],
    ids=["no scores", "metric", "csv", "no format", "no metric"],
)
def test_what_does_not_fit_is_refused(folder, capsys, words, message):
    before = sorted(folder.iterdir())
    assert main(["collect", "--results", str(folder), *words]) == 2
    assert message in capsys.readouterr().err
    assert sorted(folder.iterdir()) == before
