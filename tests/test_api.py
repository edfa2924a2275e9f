"""What Python programs call: the same as the commands, on names, DataFrames and arrays."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import dlmexp
from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.common.literals import literal
from tests.experiment.models.test_predictor import table
from tests.support.cells import ELBO, candidates, fill

SMALL: dict[str, Any] = {
    "sizes": [40],
    "seeds": [0, 1],
    "beta": "list",
    "device": "cpu",
    "verbose": False,
}
SMALL |= {f"training.{task}.max_iterations": 30 for task in ("regression", "binary", "count")} | {
    "dataset.csv.M": 6
}
BETAS: dict[str, Any] = {"beta.values": [5, 0.5]}
FRAME, COLUMNS = table(), ["rooms", "sort", "age"]


@pytest.mark.slow
def test_a_session_on_a_data_frame(here, capsys):
    frame = FRAME[[*COLUMNS, "regression"]]
    about = {"target": "regression", "task": "regression", "name": "houses"}
    found = dlmexp.run(frame, ["elbo", "joint_log_dlm"], **about, **SMALL, **BETAS)
    assert capsys.readouterr().out == ""
    assert "4 cells done, 0 failed" in repr(found)
    assert len(found.cells) == 4
    assert set(found.selected["method"]) == {"elbo", "joint_log_dlm"}
    assert set(found.selected["key"]) <= set(found.cells["key"][found.cells["model"]])
    best = found.model(method="joint_log_dlm")
    assert best.features == COLUMNS
    predicted = best.predict(frame[["age", "rooms", "sort"]].head(7))
    assert list(predicted) == ["mean", "std", "lower_95", "upper_95"]
    pd.testing.assert_frame_equal(best.predict(frame[COLUMNS].head(7).to_numpy()), predicted)
    frame.head(7).to_csv("new.csv", index=False)
    assert main(["predict", "new.csv", "--where", "method=joint_log_dlm", "--out", "out.csv"]) == 0
    pd.testing.assert_frame_equal(pd.read_csv("out.csv")[list(predicted)], predicted, rtol=1e-12)
    assert len(found.model(seeds="all", method="elbo").cells) == 2
    curve = found.curves(best.cells[0].key)
    assert len(curve) == found.cells.set_index("key").loc[best.cells[0].key, "iterations"]
    _, likelihood = best.to_gpytorch()
    assert type(likelihood).__name__ == "GaussianLikelihood"
    assert best.export("mine.pt") == Path("mine.py")
    with pytest.raises(UserError, match="choose a seed"):
        found.model(seeds="all").to_gpytorch()
    pd.testing.assert_frame_equal(dlmexp.results("results").cells, found.cells)
    # L-BFGS, the default, has no learning curves.
    by_adam: dict[str, Any] = {"training.optimizer": "adam"}
    watched = dlmexp.run(frame, "elbo", **about, **SMALL, evaluate=10, **by_adam)
    curve = watched.curves(watched.cells.query("evaluate == '10'")["key"].iloc[0])
    assert (curve["objective"].notna().sum(), curve["test_nll"].notna().sum()) == (30, 4)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["binary", "count"])
def test_arrays(here, task):
    X, y = FRAME[["rooms", "age"]].to_numpy(), FRAME[task].to_numpy()
    found = dlmexp.run((X, y), "elbo", task=task, **SMALL)
    predicted = found.model().predict(X[:4])
    if task == "binary":
        assert list(predicted) == ["label", "probability_no", "probability_yes"]
        assert set(predicted["label"]) <= {"yes", "no"}
    else:
        assert predicted["upper_95"].dtype.kind == "i"


COUNTS = {"target": "count", "task": "count"}
RENAMED = FRAME[["rooms", "age"]].set_axis(["rooms", "y"], axis=1)
MISTAKES = {
    "no task": ({"target": "regression"}, "needs task="),
    "an unknown task": ({"target": "regression", "task": "ranking"}, "csv.task=ranking"),
    "no target": ({"task": "regression"}, "name the column to predict"),
    "an unknown target": ({"task": "regression", "target": "prise"}, "prise"),
    "shapes": (
        {"dataset": (np.zeros((3, 2)), np.zeros(4)), "task": "regression"},
        r"\(3, 2\) and \(4,\)",
    ),
    "the target's name": (
        {"dataset": (RENAMED, FRAME["count"].to_numpy()), "task": "count"},
        "X has a column 'y'",
    ),
    "a name twice": (
        COUNTS | {"dataset": pd.concat([FRAME, FRAME[["age"]]], axis=1)},
        "(?i)duplicate.*age",
    ),
    "several types": (
        COUNTS | {"dataset": FRAME.assign(age=[1, "old"] * 80)},
        "column age with type object",
    ),
    "something else": ({"dataset": 7, "task": "regression"}, "is a int"),
    "a target of a known dataset": ({"dataset": "pol", "target": "y"}, "data in memory"),
    "an unknown setting": ({"dataset": "ringnorm_drawn", "sede": 1}, "there is no setting 'sede'"),
    "an object": ({"dataset": "ringnorm_drawn", "seeds": object()}, "a setting is"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_a_sentence_and_nothing_is_written(here, mistake):
    arguments, message = MISTAKES[mistake]
    with pytest.raises(UserError, match=message) as found:
        dlmexp.run(**{"dataset": FRAME} | arguments)
    assert "\n" not in str(found.value)
    assert list(here.iterdir()) == []


ONE = {"method": "elbo", **SMALL, "seeds": [0], "task": "regression", "target": "regression"}


@pytest.mark.slow
def test_selected_rows_are_those_of_the_call_and_of_a_folder_all(here):
    words: dict[str, Any] = {
        "dataset.ringnorm_drawn.options.rows": 60,
        "dataset.ringnorm_drawn.M": 3,
        "training.max_iterations": 2,
        "sizes": [10],
        "device": "cpu",
        "verbose": False,
    }
    for seed in (0, 1):
        found = dlmexp.run("ringnorm_drawn", "elbo", name="py", seeds=[seed], **words)
        assert set(found.selected["seed"]) == {seed}
    other = dlmexp.run("ringnorm_drawn", "elbo", name="other", seeds=[2], **words)
    assert set(other.selected["seed"]) == {2}
    assert set(dlmexp.results("results").selected["seed"]) == {0, 1, 2}


@pytest.mark.slow
def test_path_of_a_table_is_a_dataset_and_its_settings_are_nested(here):
    gaps = FRAME[[*COLUMNS, "regression"]].copy()
    gaps.loc[3, "age"] = np.nan
    gaps.to_csv("my houses.csv", index=False)
    found = dlmexp.run("my houses.csv", csv={"missing": "mean"}, **ONE)
    assert set(found.cells["dataset"]) == {"my_houses"}
    again = dlmexp.run(Path("my houses.csv"), csv={"missing": "mean"}, name="other", **ONE)
    assert set(again.cells["dataset"]) == set(again.selected["dataset"]) == {"other"}
    assert set(dlmexp.results("results").cells["dataset"]) == {"my_houses", "other"}
    with pytest.raises(UserError, match=r"my houses\.csv: a value is missing in row 4"):
        dlmexp.run("my houses.csv", **ONE)


@pytest.mark.slow
def test_targets_may_be_a_column(here):
    X, y = FRAME[["rooms", "age"]].to_numpy(), FRAME["regression"].to_numpy()
    plain = {**ONE, "target": None}
    rows = dlmexp.run((X, y), results="rows", **plain).cells
    column = dlmexp.run((X, y[:, None]), results="column", **plain).cells
    assert rows["key"].tolist() == column["key"].tolist()


def test_messages_name_the_data_frame_and_not_its_file(here):
    frame = FRAME[[*COLUMNS, "regression"]].assign(age=None)
    with pytest.raises(UserError, match=r"^DataFrame 'mine': ") as caught:
        dlmexp.run(frame, **ONE)
    assert ".parquet" not in str(caught.value)


@pytest.mark.slow
def test_changed_data_are_seen_by_a_plan_and_replaced_on_request(here):
    frame = FRAME[[*COLUMNS, "regression"]]
    frame.to_csv("t.csv", index=False)
    before = dlmexp.run("t.csv", **ONE)
    frame.head(150).to_csv("t.csv", index=False)
    for more in ({"plan": True}, {}):
        with pytest.raises(UserError, match=r"'t' has changed.*csv\.replace=true"):
            dlmexp.run("t.csv", **ONE, **more)  # pyright: ignore[reportArgumentType]
    after = dlmexp.run("t.csv", **ONE, csv={"replace": True})
    assert not set(before.cells["key"]) & set(after.cells["key"])
    same = dlmexp.run("t.csv", **ONE, csv={"replace": True})
    assert set(same.cells["key"]) == set(after.cells["key"])


def test_keys_that_are_not_there(tmp_path):
    fill(tmp_path, *(candidates("elbo", [replace(ELBO, seed=seed)]) for seed in range(2)))
    found = dlmexp.results(tmp_path)
    assert repr(found).endswith("2 cells done, 0 failed)")
    for words, ask in (("2 cells", lambda: found.curves("")), ("no models", found.model)):
        with pytest.raises(UserError, match=words):
            ask()


@pytest.mark.slow
def test_plot_and_claims(tmp_path):
    fits = [
        replace(ELBO, dataset="ringnorm", n=n, seed=seed, beta=1.0)
        for n in (100, 200)
        for seed in range(3)
    ]
    betas = [[replace(fit, objective="log_dlm", beta=beta) for beta in (1.0, 0.3)] for fit in fits]
    fill(
        tmp_path,
        *(candidates("elbo", [fit]) for fit in fits),
        *(candidates("joint_log_dlm", one) for one in betas),
    )
    figure = dlmexp.plot("class-log", tmp_path, dataset="ringnorm")
    assert len(figure.axes) >= 1
    verdicts = dlmexp.claims(str(tmp_path))
    assert set(verdicts["protocol"]) == {"paper"}
    assert {"number", "claim", "verdict"} <= set(verdicts.columns)
    assert len(verdicts) == 33


PLAIN_VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S", "Zs")), min_size=1)
)
FLAT_LISTS = st.lists(PLAIN_VALUES, max_size=3)
VALUES = PLAIN_VALUES | st.lists(PLAIN_VALUES | FLAT_LISTS, max_size=3)


@given(VALUES)
def test_a_value_arrives_as_it_was_given(value):
    (parsed,) = OverridesParser.create().parse_overrides([f"key={literal(value)}"])
    assert _plain(parsed.value()) == value


def _plain(value):
    return (
        [_plain(one) for one in value] if isinstance(value, list) else getattr(value, "text", value)
    )


@pytest.mark.processes
def test_nothing_heavy_is_imported_with_the_package():
    heavy = "{'torch', 'pandas', 'numpy'}"
    code = f"import sys, dlmexp; dir(dlmexp); sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_tables_with_many_features_are_read_without_a_warning(tmp_path):
    """Their records have a column for each lengthscale; warnings are errors in tests."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 60)), rng.normal(size=60)
    few = {"regression": {"max_iterations": 2}}
    found = dlmexp.run(
        (X, y), "elbo", task="regression", results=tmp_path, training=few, verbose=False, workers=1
    )
    assert len(found.table.columns) > 100
    assert len(found.selected) == 1
