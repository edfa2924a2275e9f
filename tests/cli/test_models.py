"""`dlmexp predict` and `dlmexp export`: which model, from file to file, and one sentence for every
mistake."""

import io
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.reading import tables
from dlmexp.data.schema import MISSING_LEVEL, Column, Schema
from dlmexp.experiment.models.file import encoded
from dlmexp.experiment.models.predictor import Predictor
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.store import Store
from tests.support.cells import MIXED, candidates, made_up_model, scored

NEW = pd.DataFrame(
    {"rooms": [1.0, 2.5, 3.0, 0.5], "sort": ["a", "c", "b", "c"], "age": [10, 20, 30, 40]}
)
FEATURES = np.column_stack(
    [NEW["rooms"], NEW["sort"] == "b", NEW["sort"] == "c", NEW["age"]]
).astype(float)


def fill(
    folder="results",
    likelihood="gaussian",
    schema=MIXED,
    seeds=(0,),
    betas=(1.0,),
    keep=True,
    **changes,
):
    """A results folder with made-up models; of several, seed 0 and the first beta are the best. By
    (seed, beta)."""
    store, models = Store(folder), {}
    for i, seed in enumerate(seeds):
        for j, beta in enumerate(betas):
            model = made_up_model(likelihood, seed=seed, schema=schema, beta=beta, **changes)
            record = scored(model.cell, nll=0.1 + 0.1 * i + 0.01 * j)
            record.result.y_std = model.y_std
            store.write(record, model=encoded(model) if keep else None)
            models[seed, beta] = model
    several = [
        candidates("joint_log_dlm", [models[seed, beta].cell for beta in betas]) for seed in seeds
    ]
    write_manifest(store.root, Manifest("one", several, "all"))
    return models


def predicted(capsys, *words, new=NEW):
    """What was printed on predicting the rows `new`, as a table, and the notes."""
    new.to_csv("new.csv", index=False)
    assert main(["predict", "new.csv", *words]) == 0
    said = capsys.readouterr()
    return pd.read_csv(io.StringIO(said.out)), said.err


def same(table, models):
    for name, values in Predictor(models).predict(FEATURES).items():
        np.testing.assert_allclose(
            table[name], values, rtol=1e-12, atol=1e-12 * np.abs(values).max()
        )


@pytest.mark.parametrize(
    "where", ["", "seed=1 beta=0.1", "beta=0.1 seed=1 method=joint_log_dlm", "KEY"]
)
def test_the_best_model_or_the_one_that_is_asked_for(here, capsys, where):
    models, cell = fill(seeds=(0, 1), betas=(1.0, 0.1)), (1, 0.1) if where else (0, 1.0)
    words = where.replace("KEY", f"key={models[1, 0.1].cell.key[:9]}").split()
    table, notes = predicted(capsys, *(["--where", *words] if words else []))
    same(table, [models[cell]])
    pd.testing.assert_frame_equal(table[list(NEW)], NEW)
    assert list(table)[3:] == ["mean", "std", "lower_95", "upper_95"]
    assert models[cell].cell.key in notes
    assert "4 rows" in notes
    if not where:
        own_units = 0.1 + math.log(models[cell].y_std)  # what it was chosen by
        assert (
            f"the best of 2 on the validation rows of seed 0, validation NLL {own_units:.4f}"
            in notes
        )


def test_all_seeds_are_a_mixture_of_their_best_models(here, capsys):
    models = fill(seeds=(0, 1, 2), betas=(1.0, 0.1))
    fill(seeds=(5,), lr=0.7)  # trained in another way: no part of the mixture
    table, notes = predicted(capsys, "--seeds", "all", "--where", "lr=0.1")
    same(table, [models[seed, 1.0] for seed in (0, 1, 2)])
    assert notes.count("model ") == 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_in_any_order_beside_others_which_stay_and_in_pieces(
    here, capsys, monkeypatch, suffix
):
    fill()
    straight = predicted(capsys)[0][["mean", "std", "lower_95", "upper_95"]]
    other = pd.concat(
        [NEW[["age", "sort", "rooms"]].assign(id=["007", "x,y", "", "-"])] * 20, ignore_index=True
    )
    other.to_csv("other.csv", index=False) if suffix == ".csv" else other.to_parquet(
        "other.parquet"
    )
    out = f"out{suffix}"
    monkeypatch.setattr(tables, "BLOCK_BYTES", 200)
    monkeypatch.setattr(tables, "BLOCK_ROWS", 7)
    assert main(["predict", f"other{suffix}", "--out", out]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "80 rows" in said.err
    table = pd.read_csv(out, dtype={"id": str}) if suffix == ".csv" else pd.read_parquet(out)
    pd.testing.assert_frame_equal(
        table[list(straight)], pd.concat([straight] * 20, ignore_index=True), rtol=1e-12, atol=1e-12
    )
    assert list(table)[:4] == ["age", "sort", "rooms", "id"]
    assert list(table["id"])[:2] == ["007", "x,y"]
    assert suffix == ".parquet" or "\n10,a,1.0,007," in Path(out).read_text(), (
        "as it was, without quotes"
    )
    assert sorted(path.name for path in here.iterdir()) == [
        "new.csv",
        f"other{suffix}",
        out,
        "results",
    ]


def test_filled_gaps_are_counted_and_true_and_false_are_numbers(here, capsys):
    level = Column("sort", "category", ("a", "b", "c", MISSING_LEVEL))
    fill(schema=Schema("price", (MIXED.columns[0], level, MIXED.columns[2]), fill=True))
    gaps = pd.DataFrame({"rooms": [1, None, None], "sort": ["a", None, "b"], "age": [10, 20, 30]})
    _, notes = predicted(capsys, new=gaps)
    assert "missing values, taken as in training: rooms 2, sort 1" in notes
    ages = (["true", "False", "1", "0"], [1, 0, 1, 0])
    words, numbers = (
        predicted(capsys, new=NEW.assign(age=age))[0].drop(columns="age") for age in ages
    )
    pd.testing.assert_frame_equal(words, numbers)


ROWS = {  # what is wrong: the file, and what the sentence names
    "several are missing": ("room,sorts\n1,a\n", ["'rooms'", "'sort', 'age'", "did you mean room"]),
    "a column is there twice": ("rooms,sort,age,age\n1,a,10,10\n", ["age"]),
    "no row is sound": (
        "rooms,sort,age\n1,a,x\n1,d,10\n",
        ["no row", "row 1, column 'age'", "'x'"],
    ),
    "a column of that name": ("rooms,sort,age,mean\n1,a,10,3\n", ["'mean'"]),
    "an empty file": ("", ["new.csv"]),
    "only a header": ("rooms,sort,age\n", ["no rows"]),
    "not UTF-8": ("rooms,sort,age\n1,a,10\n3,é,30\n", ["new.csv", "UTF-8"]),
    "no Parquet": ("hello", ["new.parquet"]),
}


@pytest.mark.parametrize("mistake", ROWS)
def test_rows_that_cant_be_predicted_on(mistake, here, refused, monkeypatch):
    fill()
    content, expected = ROWS[mistake]
    new = "new.parquet" if mistake == "no Parquet" else "new.csv"
    Path(new).write_text(content, encoding="latin-1")
    monkeypatch.setattr(tables, "BLOCK_BYTES", 40)
    refused(["predict", new, "--out", f"out{Path(new).suffix}"], *expected)


BAD = "rooms,sort,age\n1,a,10\n1,a,x\n,b,20\n2,d,30\n2,,30\n" + "1,a,10\n" * 70


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_that_cant_be_predicted_on_are_empty_and_have_a_reason(
    here, capsys, monkeypatch, suffix
):
    fill()
    Path("new.csv").write_text(BAD)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 200)
    assert main(["predict", "new.csv", "--out", f"out{suffix}"]) == 1
    notes = capsys.readouterr().err
    assert "71 rows predicted" in notes
    assert "4 rows without a prediction" in notes
    assert "row 2, column 'age': 'x' is not a number" in notes
    table = pd.read_csv("out.csv") if suffix == ".csv" else pd.read_parquet("out.parquet")
    reasons = table["reason"]
    assert table["mean"].isna().tolist() == reasons.notna().tolist()
    assert np.flatnonzero(reasons.notna()).tolist() == [1, 2, 3, 4]
    assert "column 'rooms': the value is missing" in reasons[2]
    assert "'d' is not a value that the model was trained on" in reasons[3]
    assert table["mean"].iloc[-1] == pytest.approx(table["mean"][0])


def test_unseen_categories_and_gaps_are_predicted_on_from_other_columns(here, capsys):
    sort = Column("sort", "category", ("a", "b", "c"), encoding="indicators")
    schema = Schema("price", (MIXED.columns[0], MIXED.columns[2], sort))
    fill(schema=schema)
    Path("new.csv").write_text(BAD)
    assert main(["predict", "new.csv", "--unseen", "base", "--missing", "mean"]) == 1
    said = capsys.readouterr()
    table = pd.read_csv(io.StringIO(said.out))
    assert np.flatnonzero(table["reason"].notna()).tolist() == [1]
    assert "numbers at their mean, categories as unseen: rooms 1, sort 1" in said.err
    assert "without a known category, predicted from other columns: sort 2" in said.err
    assert table["mean"][3] == pytest.approx(table["mean"][4])  # unseen, and not known


def test_quantiles_probabilities_and_samples_are_further_columns(here, capsys):
    fill()
    words = ["--quantiles", "0.025,0.5", "--above", "100", "--samples", "2"]
    table, _ = predicted(capsys, *words)
    np.testing.assert_allclose(table["quantile_0.025"], table["lower_95"], rtol=1e-6)
    np.testing.assert_allclose(table["quantile_0.5"], table["mean"], rtol=1e-6)
    assert {"above_100", "sample_1", "sample_2"} <= set(table)
    again, _ = predicted(capsys, *words)
    pd.testing.assert_frame_equal(table, again)


@pytest.mark.parametrize(
    "words", [["--quantiles", "1.5"], ["--quantiles", "a"], ["--interval", "2"]]
)
def test_shares_beyond_0_and_1_are_refused(words, here, refused):
    fill()
    NEW.to_csv("new.csv", index=False)
    refused(["predict", "new.csv", *words], words[1])


def _damaged():
    fill()
    ((path,),) = Store("results").model_files().values()
    path.write_bytes(b"torn")


def _another():
    """The file of another cell under the name that this one's should have: its checksum fits, its
    cell does not."""
    model = made_up_model(schema=MIXED)
    cell = replace(model.cell, n=7)
    write_manifest(Path("results"), Manifest("mine", [candidates("elbo", [cell])]))
    Store("results").write(scored(cell, nll=1.0), model=encoded(model))


def _with(**other):
    """A model, and beside it another one."""
    return lambda: (fill(), fill(**other))


COST = Schema("cost", MIXED.columns)
ASKED = {  # what is there, what is typed, what the sentence names
    "no folder": (lambda: None, "predict new.csv", ["'results'"]),
    "no records": (lambda: Path("results").mkdir(), "predict new.csv", ["'results'"]),
    "no models": (lambda: fill(keep=False), "predict new.csv", ["'results'", "results="]),
    "no model": (
        _with(seeds=(4,), keep=False),
        "predict new.csv --where seed=4",
        ["seed=4", "1 record without"],
    ),
    "a field that cells do not have": (fill, "predict new.csv --where sede=1", ["sede", "seed"]),
    "no value": (fill, "predict new.csv --where seed=", ["--where seed="]),
    "two files": (fill, "predict new.csv --where seed=0 other.csv", ["one file"]),
    "a method that nobody ran": (
        fill,
        "predict new.csv --where method=elbo",
        ["method=elbo", "joint_log_dlm"],
    ),
    "several datasets": (_with(dataset="other"), "predict new.csv", ["dataset=banana|other"]),
    "all seeds, and one": (fill, "predict new.csv --seeds all --where seed=0", ["seed="]),
    "a mixture of tables": (
        _with(seeds=(1,), schema=COST),
        "predict new.csv --seeds all",
        ["columns"],
    ),
    "a damaged model": (_damaged, "predict new.csv", ["checksum", "results="]),
    "that of another cell": (_another, "predict new.csv", ["another cell"]),
    "no share": (fill, "predict new.csv --interval 95", ["--interval 95"]),
    "an unknown kind of output": (fill, "predict new.csv --out out.xls", ["out.xls", ".parquet"]),
    "a folder that is not there": (fill, "predict new.csv --out no/out.csv", ["no/out.csv"]),
    "onto itself": (fill, "predict new.csv --out new.csv", ["--out new.csv"]),
    "export: no file": (fill, "export", ["name the file"]),
    "export: too many words": (fill, "export a b c.pt", ["name the file"]),
    "export: another suffix": (fill, "export model.onnx", ["model.onnx", ".pt"]),
    "export: an unknown key": (fill, "export xyz model.pt", ["key=xyz"]),
}


@pytest.mark.parametrize("mistake", ASKED)
def test_mistakes_in_what_is_asked_for(mistake, here, refused):
    make, typed, expected = ASKED[mistake]
    make()
    NEW.to_csv("new.csv", index=False)
    refused(typed.split(), *expected)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["KEY"], "model.pt"),
        (["--where", "seed=1"], "my-model v1.2.pt"),
        (["folder/model.pt", "--where", "seed=1"], "folder/model.pt"),
    ],
)
def test_the_exported_model_is_the_one_asked_for_and_loads_as_is_said(
    here, capsys, monkeypatch, words, name
):
    key = fill(seeds=(0, 1))[1, 1.0].cell.key
    Path("folder").mkdir()
    words = [word.replace("KEY", key[:10]) for word in words]
    assert main(["export", *words, *([] if name in words else [name])]) == 0
    said = capsys.readouterr().out
    assert key in said
    assert torch.load(name, weights_only=True)["key"] == key
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    loaded: dict[str, Any] = {}
    exec(said.splitlines()[-1].partition(".py: ")[2], loaded)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    assert loaded["saved"]["key"] == key


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_values_reach_a_file_as_they_are_and_no_terminal_obeys_them(here, capsys, monkeypatch):
    """Also formulas: what a user's table has is not changed."""
    fill()
    odd = NEW.assign(note=["=cmd|' /C calc'!A0", "\x1b[2J", "-1", "@SUM(A1)"])
    odd.to_csv("new.csv", index=False)
    assert main(["predict", "new.csv", "--out", "out.csv"]) == 0
    assert list(pd.read_csv("out.csv")["note"]) == list(odd["note"])
    capsys.readouterr()
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["predict", "new.csv"]) == 2
    assert "control characters" in capsys.readouterr().err
    assert terminal.getvalue() == ""
