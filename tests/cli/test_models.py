"""`dlmexp predict` and `dlmexp export`: which model, from file to file, and one sentence for every mistake."""

import io
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.data.schema import MISSING_LEVEL, Column, Schema
from dlmexp.models.file import encoded
from dlmexp.models.predictor import Predictor
from dlmexp.reading import tables
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.store import Store
from tests.support.cells import ask, candidates, scored
from tests.support.models import MIXED, made_up_model

NEW = pd.DataFrame({"rooms": [1.0, 2.5, 3.0, 0.5], "sort": ["a", "c", "b", "c"], "age": [10, 20, 30, 40]})
FEATURES = np.column_stack([NEW["rooms"], NEW["sort"] == "b", NEW["sort"] == "c", NEW["age"]]).astype(float)
LABELS = Schema("sold", MIXED.columns, ("no", "yes"))


def fill(folder="results", likelihood="gaussian", schema=MIXED, seeds=(0,), betas=(1.0,), keep=True, **changes):
    """A results folder with made-up models; of several, seed 0 and the first beta are the best. By (seed, beta)."""
    store, found = Store(folder), {}
    for i, seed in enumerate(seeds):
        for j, beta in enumerate(betas):
            model = made_up_model(likelihood, seed=seed, schema=schema, beta=beta, **changes)
            record = scored(model.cell, nll=0.1 + 0.1 * i + 0.01 * j)
            record.result.y_std = model.y_std
            store.write(record, model=encoded(model) if keep else None)
            found[seed, beta] = model
    several = [candidates("joint_log_dlm", [found[seed, beta].cell for beta in betas]) for seed in seeds]
    write_manifest(store.root, manifest("one", several, "all"))
    return found


def predicted(capsys, *words):
    """What was printed, as a table, and the notes."""
    assert main(["predict", *words]) == 0
    said = capsys.readouterr()
    return pd.read_csv(io.StringIO(said.out)), said.err


def test_predictions_of_the_best_model(here, capsys):
    models = fill(seeds=(0, 1), betas=(1.0, 0.1))
    NEW.to_csv("new.csv", index=False)
    found, notes = predicted(capsys, "new.csv")
    expected = Predictor([models[0, 1.0]]).predict(FEATURES)
    assert list(found) == [*NEW, "mean", "std", "lower_95", "upper_95"]
    pd.testing.assert_frame_equal(found[list(NEW)], NEW)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12 * np.abs(values).max())
    assert models[0, 1.0].cell.key in notes
    assert "joint_log_dlm" in notes
    own_units = 0.1 + math.log(models[0, 1.0].y_std)  # what it was chosen by
    assert f"the best of 4, validation NLL {own_units:.4f}" in notes
    assert "4 rows predicted" in notes


@pytest.mark.parametrize("where", [["seed=1", "beta=0.1"], ["beta=0.1", "seed=1", "method=joint_log_dlm"], ["key=KEY"]])
def test_the_model_that_is_asked_for(here, capsys, where):
    models = fill(seeds=(0, 1), betas=(1.0, 0.1))
    NEW.to_csv("new.csv", index=False)
    key = models[1, 0.1].cell.key
    found, notes = predicted(capsys, "new.csv", "--where", *(word.replace("KEY", key[:9]) for word in where))
    np.testing.assert_allclose(
        found["mean"], Predictor([models[1, 0.1]]).predict(FEATURES)["mean"], rtol=1e-12, atol=1e-12
    )
    assert key in notes


def test_own_units_decide_which_model_is_best(here, capsys):
    """A model whose targets have a spread of 100 has log 100 more NLL in own units than on its normalised scale."""
    store = Store("results")
    models = {unit: made_up_model(seed=int(unit), schema=MIXED) for unit in (1.0, 100.0)}
    for unit, nll in ((1.0, 0.5), (100.0, 0.4)):
        record = scored(models[unit].cell, nll=nll)
        record.result.y_std = unit
        store.write(record, model=encoded(models[unit]))
    ask(store.root, "mine", [model.cell for model in models.values()])
    NEW.to_csv("new.csv", index=False)
    assert models[1.0].cell.key in predicted(capsys, "new.csv")[1]


def test_all_seeds_are_a_mixture_of_their_best_models(here, capsys):
    models = fill(seeds=(0, 1, 2), betas=(1.0, 0.1))
    fill(seeds=(5,), lr=0.7)  # trained in another way: no part of the mixture
    NEW.to_csv("new.csv", index=False)
    found, notes = predicted(capsys, "new.csv", "--seeds", "all", "--where", "lr=0.1")
    expected = Predictor([models[seed, 1.0] for seed in (0, 1, 2)]).predict(FEATURES)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-12, atol=1e-12 * np.abs(values).max())
    assert notes.count("model ") == 3


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_in_any_order_beside_others_which_stay(here, capsys, suffix):
    fill()
    NEW.to_csv("new.csv", index=False)
    straight, _ = predicted(capsys, "new.csv", "--only")
    assert list(straight) == ["mean", "std", "lower_95", "upper_95"]
    other = NEW[["age", "sort", "rooms"]].assign(id=["007", "x,y", "", "-"])
    other.to_csv("other.csv", index=False) if suffix == ".csv" else other.to_parquet("other.parquet")
    out = f"out{suffix}"
    assert main(["predict", f"other{suffix}", "--out", out]) == 0
    assert capsys.readouterr().out == ""
    found = pd.read_csv(out, dtype={"id": str}) if suffix == ".csv" else pd.read_parquet(out)
    pd.testing.assert_frame_equal(found[list(straight)], straight)
    assert list(found)[:4] == ["age", "sort", "rooms", "id"]
    assert list(found["id"])[:2] == ["007", "x,y"]
    assert suffix == ".parquet" or "\n10,a,1.0,007," in Path(out).read_text(), "as it was, without quotes"
    assert sorted(path.name for path in here.iterdir()) == ["new.csv", f"other{suffix}", out, "results"]


@pytest.mark.parametrize("level", [0.5, 0.8, 0.999])
def test_an_interval_of_any_level(here, capsys, level):
    fill(seeds=(0, 1))
    NEW.to_csv("new.csv", index=False)
    found, _ = predicted(capsys, "new.csv", "--interval", str(level))
    ends = found[[f"lower_{100 * level:g}", f"upper_{100 * level:g}"]].to_numpy().T
    np.testing.assert_allclose(ends, scipy.stats.norm.interval(level, found["mean"], found["std"]), rtol=1e-8)


def test_filled_gaps_are_counted(here, capsys):
    level = Column("sort", "category", ("a", "b", "c", MISSING_LEVEL))
    fill(schema=Schema("price", (MIXED.columns[0], level, MIXED.columns[2]), fill=True))
    Path("new.csv").write_text("rooms,sort,age\n1,a,10\n,,20\n,b,30\n")
    _, notes = predicted(capsys, "new.csv")
    assert "2 missing values filled with the mean of the training rows: rooms 2" in notes
    assert "1 missing value taken as a level of their own: sort 1" in notes


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_in_pieces(here, capsys, monkeypatch, suffix):
    fill()
    many = pd.concat([NEW] * 50, ignore_index=True)
    path = Path(f"many{suffix}")
    many.to_csv(path, index=False) if suffix == ".csv" else many.to_parquet(path)
    whole, _ = predicted(capsys, str(path))
    monkeypatch.setattr(tables, "BLOCK_BYTES", 200)
    monkeypatch.setattr(tables, "BLOCK_ROWS", 7)
    pieces, notes = predicted(capsys, str(path))
    pd.testing.assert_frame_equal(pieces, whole, rtol=1e-12)
    assert "200 rows predicted" in notes


def test_labels_are_the_users_own(here, capsys):
    models = fill(likelihood="probit", schema=LABELS)
    NEW.to_csv("new.csv", index=False)
    found, _ = predicted(capsys, "new.csv")
    p = Predictor([models[0, 1.0]]).predict(FEATURES)["probability_yes"]
    assert list(found)[3:] == ["label", "probability_no", "probability_yes"]
    np.testing.assert_allclose(found["probability_yes"], p, rtol=1e-12, atol=1e-12)
    assert list(found["label"]) == ["yes" if value > 0.5 else "no" for value in p]


def test_counts_have_whole_ends(here, capsys):
    fill(likelihood="poisson")
    NEW.to_csv("new.csv", index=False)
    assert main(["predict", "new.csv", "--only"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mean,std,lower_95,upper_95"
    assert all(end.isdigit() for line in lines[1:] for end in line.split(",")[2:])


def test_true_and_false_are_numbers_as_in_training(here, capsys):
    fill()
    NEW.assign(age=["true", "False", "1", "0"]).to_csv("words.csv", index=False)
    NEW.assign(age=[1, 0, 1, 0]).to_csv("numbers.csv", index=False)
    words, numbers = (predicted(capsys, f"{name}.csv", "--only")[0] for name in ("words", "numbers"))
    pd.testing.assert_frame_equal(words, numbers)


def _csv(text):
    return lambda: Path("new.csv").write_text(text)


GOOD = "rooms,sort,age\n1,a,10\n2,b,20\n"
ROWS = {
    "a column is missing": (_csv("rooms,age\n1,10\n"), ["no column 'sort', which the model needs: it has age, rooms"]),
    "several are missing": (_csv("room,sorts\n1,a\n"), ["no column 'rooms'", "2 more: sort, age", "did you mean room"]),
    "a column is there twice": (_csv("rooms,sort,age,age\n1,a,10,10\n"), ["several columns are called age"]),
    "an unknown category": (_csv(GOOD + "3,d,30\n"), ["row 3, column 'sort'", "'d'", "a, b, c"]),
    "a number is missing": (_csv(GOOD + "3,a,\n"), ["row 3, column 'age'", "missing"]),
    "NaN": (_csv(GOOD + "nan,a,30\n"), ["row 3, column 'rooms'", "missing"]),
    "infinity": (_csv(GOOD + "inf,a,30\n"), ["row 3, column 'rooms'", "infinite"]),
    "text": (_csv(GOOD + "3,a,old\n"), ["row 3, column 'age'", "'old' is not a number"]),
    "a column of that name": (_csv("rooms,sort,age,mean\n1,a,10,3\n"), ["'mean'", "--only"]),
    "an empty file": (_csv(""), ["not a csv file"]),
    "only a header": (_csv("rooms,sort,age\n"), ["no rows"]),
    "not UTF-8": (lambda: Path("new.csv").write_bytes(GOOD.encode() + b"3,\xe9,30\n"), ["new.csv"]),
    "NaN in Parquet": (
        lambda: NEW.assign(age=[1, math.nan, 3, 4]).to_parquet("new.parquet"), ["row 2, column 'age'", "missing"],
    ),
    "dates in Parquet": (
        lambda: NEW.assign(age=pd.Timestamp("2020-01-01")).to_parquet("new.parquet"),
        ["column 'age'", "dates", "trained on numbers"],
    ),
    "no Parquet": (lambda: Path("new.parquet").write_text("hello"), ["is not a parquet file"]),
    "no such file": (lambda: None, ["new.csv: there is no such file"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", ROWS)
def test_rows_that_cant_be_predicted_on(mistake, here, capsys):
    fill()
    make, expected = ROWS[mistake]
    make()
    before = sorted(here.rglob("*"))
    new = "new.parquet" if Path("new.parquet").exists() else "new.csv"
    out = "out.parquet" if new.endswith("parquet") else "out.csv"
    _refused(capsys, ["predict", new, "--out", out], expected)
    assert sorted(here.rglob("*")) == before


def test_rows_are_counted_over_pieces(here, capsys, monkeypatch):
    fill()
    monkeypatch.setattr(tables, "BLOCK_BYTES", 40)
    Path("new.csv").write_text("rooms,sort,age\n" + "1,a,10\n" * 70 + "1,a,x\n" + "1,a,10\n" * 9)
    _refused(capsys, ["predict", "new.csv", "--out", "out.csv"], ["row 71, column 'age'"])
    assert not Path("out.csv").exists()


def _refused(capsys, words, expected):
    assert main(words) == 2
    said = capsys.readouterr()
    last = said.err.splitlines()[-1]
    assert last.startswith("dlmexp: ")
    assert "Traceback" not in said.err
    for part in expected:
        assert part in last


def _damaged(content=b"torn"):
    fill()
    ((path,),) = Store("results").keys_with_models().values()
    path.write_bytes(content)


def _another():
    """The file of another cell under the name that this one's should have: its checksum fits, its cell does not."""
    model = made_up_model(schema=MIXED)
    cell = replace(model.cell, n=7)
    ask(Path("results"), "mine", [cell])
    Store("results").write(scored(cell, nll=1.0), model=encoded(model))


def _two():
    fill()
    fill(dataset="other")


def _renamed():
    """The same numbers under other names: cells that differ in their seed only."""
    fill(schema=Schema("price", MIXED.columns))
    fill(seeds=(1,), schema=Schema("cost", MIXED.columns))


ASKED = {
    "no folder": (lambda: None, [], ["there is no folder 'results'"]),
    "no records": (lambda: Path("results").mkdir(), [], ["holds no records yet"]),
    "no models": (lambda: fill(keep=False), [], ["no models in 'results'", "results="]),
    "a field that cells do not have": (fill, ["--where", "sede=1"], ["sede", "seed"]),
    "no value": (fill, ["--where", "seed="], ["--where seed=: write field=value"]),
    "two files": (fill, ["--where", "seed=0", "other.csv"], ["name one file to predict on"]),
    "a value that no record has": (fill, ["--where", "seed=9"], ["seed=9", "there are 0"]),
    "a method that nobody ran": (fill, ["--where", "method=elbo"], ["method=elbo", "joint_log_dlm"]),
    "a key that is not there": (fill, ["--where", "key=xyz"], ["key=xyz"]),
    "several datasets": (_two, [], ["several datasets", "dataset=banana|other"]),
    "all seeds, and one": (fill, ["--seeds", "all", "--where", "seed=0"], ["leave seed="]),
    "a mixture of tables": (_renamed, ["--seeds", "all"], ["other names of columns", "make no mixture"]),
    "a damaged model": (_damaged, [], ["can't be used", "checksum", "results="]),
    "that of another cell": (_another, [], ["can't be used", "another cell"]),
    "no share": (fill, ["--interval", "95"], ["--interval 95"]),
    "an unknown kind of output": (fill, ["--out", "out.xls"], ["out.xls", ".parquet"]),
    "a folder that is not there": (fill, ["--out", "no/out.csv"], ["can't write"]),
    "onto itself": (fill, ["--out", "new.csv"], ["name another one"]),
}


@pytest.mark.parametrize("mistake", ASKED)
def test_mistakes_in_what_is_asked_for(mistake, here, capsys):
    make, words, expected = ASKED[mistake]
    make()
    NEW.to_csv("new.csv", index=False)
    before = sorted(here.rglob("*"))
    _refused(capsys, ["predict", "new.csv", *words], expected)
    assert sorted(here.rglob("*")) == before


def test_a_record_without_a_model_beside_one_with(here, capsys):
    fill()
    fill(seeds=(4,), keep=False)
    NEW.to_csv("new.csv", index=False)
    expected = ["no model", "seed=4", "1 record without", "results="]
    _refused(capsys, ["predict", "new.csv", "--where", "seed=4"], expected)


@pytest.mark.parametrize(
    "words", [["KEY", "model.pt"], ["--where", "seed=1", "model.pt"], ["model.pt", "--where", "seed=1"]]
)
def test_the_exported_model_is_the_one_asked_for(here, capsys, words):
    key = fill(seeds=(0, 1))[1, 1.0].cell.key
    assert main(["export", *(word.replace("KEY", key[:10]) for word in words)]) == 0
    assert key in capsys.readouterr().out
    assert torch.load("model.pt", weights_only=True)["key"] == key


@pytest.mark.parametrize("name", ["model.pt", "my-model v1.2.pt", "folder/model.pt"])
def test_what_is_said_to_load_it_does(here, capsys, monkeypatch, name):
    key = fill(seeds=(0, 1))[0, 1.0].cell.key
    Path("folder").mkdir()
    assert main(["export", name]) == 0
    code = capsys.readouterr().out.splitlines()[-1].partition(".py: ")[2]
    monkeypatch.syspath_prepend(str(here))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    found: dict[str, Any] = {}
    exec(code, found)
    monkeypatch.delitem(sys.modules, "model", raising=False)
    assert found["saved"]["key"] == key


EXPORTS = {
    "no file": ([], ["name the file to write"]),
    "too many words": (["a", "b", "c.pt"], ["name the file to write"]),
    "another suffix": (["model.onnx"], ["model.onnx", ".pt"]),
    "no such folder": (["no/model.pt"], ["can't write"]),
    "an unknown key": (["xyz", "model.pt"], ["key=xyz"]),
}


@pytest.mark.parametrize("mistake", EXPORTS)
def test_mistakes_of_export(mistake, here, capsys):
    fill()
    words, expected = EXPORTS[mistake]
    before = sorted(here.rglob("*"))
    _refused(capsys, ["export", *words], expected)
    assert sorted(here.rglob("*")) == before


def test_a_folder_that_cant_be_written_to(here, capsys, monkeypatch):
    fill()
    monkeypatch.setattr(os, "access", lambda *_: False)
    _refused(capsys, ["export", "model.pt"], ["'model.pt': can't write there"])
