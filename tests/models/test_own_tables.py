"""Models of a user's own table: logarithms of targets, one file to hand on, raw tables for GPyTorch."""

import runpy

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
from msgspec.structs import replace

from dlmexp.data.schema import Column, Schema
from dlmexp.errors import UserError
from dlmexp.models.export import export
from dlmexp.models.file import load_file
from dlmexp.models.predictor import Predictor
from tests.support.models import made_up_model

COLUMNS = (
    Column("rooms"), Column("sort", "category", ("a", "b", "(missing)")), Column("code", "category", ("1", "7"), "numbers"),
    Column("day", "date", format="%d/%m/%Y"),
)  # fmt: skip
SCHEMA = Schema("price", COLUMNS, fill=True)
FRAME = pd.DataFrame({
    "day": ["02/01/1970", "31/12/1970", None], "sort": ["b", None, "a"], "rooms": [1.5, None, 3.0], "code": [7, 1, 7],
    "id": [1, 2, 3],
})  # fmt: skip


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_predictions_of_logarithms_are_in_own_units(likelihood):
    model = made_up_model(likelihood, schema=replace(SCHEMA, log=True))
    X = SCHEMA.encode(FRAME)
    logs, own = (Predictor([made_up_model(likelihood, schema=s)]).predict(X) for s in (SCHEMA, model.schema))
    for end in ("lower_95", "upper_95"):
        np.testing.assert_allclose(own[end], np.exp(logs[end]), rtol=1e-12)
    if likelihood == "student_t":  # its exponential has no mean: the median
        np.testing.assert_allclose(own["mean"], np.exp(logs["mean"]), rtol=1e-12)
        assert "std" not in own
        return
    exact = scipy.stats.lognorm(logs["std"], scale=np.exp(logs["mean"]))
    np.testing.assert_allclose(own["mean"], exact.mean(), rtol=1e-9)
    np.testing.assert_allclose(own["std"], exact.std(), rtol=1e-9)


def test_one_file_holds_model_and_schema(tmp_path):
    model = made_up_model(schema=SCHEMA)
    assert export(model, tmp_path / "m.npz") == tmp_path / "m.npz"
    again = load_file(tmp_path / "m.npz")
    assert again.schema == SCHEMA
    X = SCHEMA.encode(FRAME)
    np.testing.assert_array_equal(Predictor([again]).predict(X)["mean"], Predictor([model]).predict(X)["mean"])
    (tmp_path / "m.npz").write_bytes(b"no model")
    for name in ("m.npz", "none.npz"):
        with pytest.raises(UserError, match=name):
            load_file(tmp_path / name)
    with pytest.raises(UserError, match=r"\.txt"):
        export(model, tmp_path / "m.txt")


def test_the_exported_file_encodes_a_raw_table(tmp_path):
    model = made_up_model(schema=SCHEMA)
    exported = runpy.run_path(str(export(model, tmp_path / "m.pt")))
    gp, likelihood, saved = exported["load"](tmp_path / "m.pt")
    X = exported["encode"](FRAME, saved)
    np.testing.assert_array_equal(X, SCHEMA.encode(FRAME))
    x = ((X - saved["X_mean"]) / saved["X_std"]).nan_to_num()
    with torch.no_grad():
        mean = likelihood(gp(x)).mean * saved["y_std"] + saved["y_mean"]
    np.testing.assert_allclose(mean, Predictor([model]).predict(X.numpy())["mean"], rtol=1e-6)
    with pytest.raises(ValueError, match="'sort'"):
        exported["encode"](FRAME.assign(sort="q"), saved)
