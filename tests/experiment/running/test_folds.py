"""Runs that select by folds, against a slow loop over folds; stopped and continued runs."""

import os
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import norm

import dlmexp
from dlmexp.cli import main
from dlmexp.core.folds import OWN_ROWS
from dlmexp.data.splits import Arrangement, Split, split
from dlmexp.experiment.records.results import ResultsFolder
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.running.progress import Progress
from tests.support.processes import comparable

pytestmark = pytest.mark.slow
ROWS, M, LIMIT = 90, 5, 25
BETAS = (30.0, 3.0, 0.3)
METHODS = "method=[elbo,fixed_log_dlm,joint_log_dlm,joint_sq_dlm]"


def table():
    """Rows of a curve with noise that grows, whose target is far from variance 1."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(ROWS, 2))
    noise = (0.1 + 0.4 * (X[:, 1] > 0)) * rng.normal(size=ROWS)
    return X, 7.0 + 3.0 * (np.sin(2 * X[:, 0]) + noise)


def parts_of_table(seed: int) -> Split:
    """The rows of the table as a run divides them."""
    return split(ROWS, "regression", seed, arrangement=Arrangement(tag=OWN_ROWS))


WORDS = (
    "protocol=paper",
    "dataset=csv",
    "csv.path=rows.csv",
    "csv.target=y",
    "csv.task=regression",
    "dataset.csv.kernel=rbf",
    "dataset.csv.ard=false",
    "inducing=first",
    f"M={M}",
    f"max_iterations={LIMIT}",
    "window=null",
    f"beta=[{','.join(map(str, BETAS))}]",
    METHODS,
    "seeds=[0,1]",
    "sizes=['100%']",
    "device=cpu",
    "workers=1",
    "cv=3",
)


def write_rows():
    """Write the table into the current folder."""
    X, y = table()
    rows = np.column_stack([X, y])
    np.savetxt("rows.csv", rows, delimiter=",", header="a,b,y", comments="", fmt="%.17g")


@pytest.fixture
def words(here):
    """Settings of a run with folds on a table in the current folder, done in a moment."""
    write_rows()
    return list(WORDS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of that run, undisturbed; only to be read."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_rows()
        assert main(["run", *WORDS]) == 0
    return folder / "results"


def best_beta(losses: dict[float, Any]) -> float:
    """The beta of the least loss."""
    return min(losses, key=lambda beta: losses[beta])


def lines(table) -> list[SimpleNamespace]:
    """The rows of a table, with attributes of any type."""
    return [SimpleNamespace(**row) for row in table.to_dict("records")]


class Loop:
    """Cross-validation of one method and seed, fold by fold and beta by beta."""

    def __init__(self, objective, seed, folds=3):
        X, y = table()
        parts = parts_of_table(seed)
        rows = np.concatenate([parts.train, parts.validation])
        self.objective = objective
        self.size = len(rows) // folds
        self.nll = dict.fromkeys(BETAS, 0.0)
        self.mse = dict.fromkeys(BETAS, 0.0)
        self.predictions = {beta: [] for beta in BETAS}
        for number in range(folds):
            held_out = rows[number * self.size : (number + 1) * self.size]
            train = np.setdiff1d(rows, held_out)
            train = rows[np.isin(rows, train)]  # in their order
            self.add_fold(X[train], y[train], X[held_out], y[held_out], folds)

    def add_fold(self, X, y, X_held_out, y_held_out, folds):
        centre, scale = X.mean(0), X.std(0)
        for beta in BETAS:
            (fit,) = dlmexp.fit(
                ((X - centre) / scale)[None],
                ((y - y.mean()) / y.std())[None],
                dlmexp.Model("rbf", "gaussian", M=M),
                objective=self.objective,
                betas=beta,
                settings=dlmexp.Settings(lr=0.1, iterations=LIMIT, window=None),
                device="cpu",
            )
            prediction = fit.predict((X_held_out - centre) / scale)
            mean = prediction.mean * y.std() + y.mean()
            self.mse[beta] += np.mean((mean - y_held_out) ** 2) / folds
            if fit.predicts_variance:
                assert prediction.variance is not None
                deviation = np.sqrt(prediction.variance) * y.std()
                self.nll[beta] -= norm.logpdf(y_held_out, mean, deviation).mean() / folds
                self.predictions[beta].append((y_held_out, mean, deviation))

    def temperature(self, beta):
        """The factor of the variance with the least NLL, with a penalty of 2 per log unit."""

        def loss(log):
            rows = np.concatenate(self.predictions[beta], axis=1)
            return 2 * abs(log) - norm.logpdf(rows[0], rows[1], rows[2] * np.exp(log / 2)).sum()

        minimum: Any = minimize_scalar(loss, bounds=(-6, 6), method="bounded")
        return np.exp(minimum.x)


def test_a_run_selects_and_recalibrates_as_a_loop_over_folds_does(whole):
    rows = ResultsFolder(str(whole)).table
    assert (rows["status"] == "done").all()
    assert (rows["n"] == 67).all(), "validation rows are trained on"
    for seed in (0, 1):
        loop = Loop("log_dlm", seed)
        chosen = rows[(rows["method"] == "joint_log_dlm") & (rows["seed"] == seed)]
        by_nll, by_mse = lines(chosen.sort_values("selected_by", ascending=False))
        assert by_nll.beta == best_beta(loop.nll)
        assert by_mse.beta == best_beta(loop.mse)
        validation_nll = by_nll.validation_nll + np.log(by_nll.y_std)
        assert validation_nll == pytest.approx(loop.nll[by_nll.beta], abs=1e-5)
        validation_mse = by_mse.validation_mse * by_mse.y_std**2
        assert validation_mse == pytest.approx(loop.mse[by_mse.beta], rel=1e-5)
        expected = np.log(loop.temperature(by_nll.beta))
        assert np.log(by_nll.recalibration_factor) == pytest.approx(expected, abs=5e-3)
        squared = Loop("sq_dlm", seed)
        (by_mse,) = lines(rows[(rows["method"] == "joint_sq_dlm") & (rows["seed"] == seed)])
        assert by_mse.beta == best_beta(squared.mse)


def test_recalibrated_scores_are_those_of_the_temperature_of_the_folds(words):
    assert main(["run", *words, "method=elbo", "seeds=[0]"]) == 0
    row = ResultsFolder("results").table.iloc[0]
    X, y = table()
    parts = parts_of_table(0)
    train = np.concatenate([parts.train, parts.validation])
    centre, scale = X[train].mean(0), X[train].std(0)
    shift, unit = y[train].mean(), y[train].std()
    (fit,) = dlmexp.fit(
        ((X[train] - centre) / scale)[None],
        ((y[train] - shift) / unit)[None],
        dlmexp.Model("rbf", "gaussian", M=M),
        objective="elbo",
        settings=dlmexp.Settings(lr=0.1, iterations=LIMIT, window=None),
        device="cpu",
    )
    prediction = fit.predict((X[parts.test] - centre) / scale)
    targets = (y[parts.test] - shift) / unit
    deviation = np.sqrt(prediction.variance * row["recalibration_factor"])
    nll = -norm.logpdf(targets, prediction.mean, deviation).mean()
    assert row["recalibration_factor"] != 1.0
    assert row["test_recalibrated_nll"] == pytest.approx(nll, abs=1e-6)


def stop_after(monkeypatch, records):
    """Ask a run to stop when it has written so many records."""
    finished = Progress.note_record
    count = 0

    def counting(self, record):
        nonlocal count
        finished(self, record)
        count += 1
        if count == records:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Progress, "note_record", counting)


FOLDS = 2 * 3 * (1 + 3 * len(BETAS))  # cells of folds, of two seeds


@pytest.mark.parametrize("records", [FOLDS // 2, FOLDS, FOLDS + 1])
def test_a_stopped_run_goes_on_to_the_same_results(words, here, whole, monkeypatch, records):
    stop_after(monkeypatch, records)
    assert main(["run", *words, "batch_cells=4"]) == 128 + signal.SIGTERM
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert main(["run", *words, "batch_cells=4"]) == 0
    alone = comparable(here / "results")
    assert alone.keys() == comparable(whole).keys()
    before = dict(alone)
    assert main(["run", *words]) == 0, "nothing is left to do"
    assert comparable(here / "results") == before


def test_a_run_goes_on_from_packed_folds_to_the_same_fits(words, here, whole, monkeypatch) -> None:
    undisturbed = comparable(whole)
    with monkeypatch.context() as interrupted:
        stop_after(interrupted, records=FOLDS)
        assert main(["run", *words, "results=first"]) == 128 + signal.SIGTERM
    (here / "second").mkdir()
    pack = here / "second" / "records.parquet"
    assert main(["collect", "--results", "first", "--pack", str(pack)]) == 0
    assert main(["run", *words, "results=second"]) == 0

    trained_later = comparable(here / "second")
    fits = [key for key, (_, cell, _, _) in trained_later.items() if cell.fold is None]
    assert fits
    for key in fits:
        assert trained_later[key] == undisturbed[key]


def test_two_processes_train_what_one_does(words, here, tmp_path_factory):
    alone = tmp_path_factory.mktemp("alone")
    arguments = [*words, "method=[elbo,joint_log_dlm]", "batch_cells=3"]
    assert main(["run", *arguments, f"results={alone}"]) == 0
    assert main(["run", *arguments, "workers=2"]) == 0
    assert comparable(here / "results") == comparable(alone)


def test_no_output_shows_cells_of_folds(words, here, capsys):
    assert main(["run", *words, "method=[elbo,joint_log_dlm]", "keep=none"]) == 0
    records = list(Store("results").own_records())
    shown = [*main_results(capsys), *texts_below(here / "results" / "figures")]
    assert main(["collect", "--csv"]) == 0
    assert main(["report"]) == 0
    shown += [(here / "results" / name).read_text() for name in ("table.csv", "report.html")]
    table = pd.read_csv(here / "results" / "table.csv")
    fits = {record.key for record in records if record.cell.fold is None}
    folds = {record.key for record in records if record.cell.fold is not None}
    assert set(table["key"]) == fits
    assert not [key for key in folds for text in shown if key in text]


def main_results(capsys):
    """What commands print that show results, each as a text."""
    capsys.readouterr()
    printed = []
    for words in (["status"], ["rank"], ["claims"], ["plot", "predictions", "beta"]):
        main(words)
        printed.append(capsys.readouterr().out)
    return printed


def texts_below(folder):
    """The texts of all files of numbers and notes below a folder."""
    return [path.read_text() for path in folder.rglob("*") if path.suffix in (".csv", ".md")]


def test_models_of_selected_fits_are_kept_and_those_of_folds_never_written(words):
    assert main(["run", *words, "seeds=[0]", "keep=all"]) == 0
    store = Store("results")
    selected = ResultsFolder("results").table["key"]
    assert set(store.model_files()) == set(selected)


def test_the_plan_counts_folds_and_the_fits_to_all_rows(words, whole, capsys):
    capsys.readouterr()
    assert main(["run", *words, "plan=true"]) == 0
    cells = f"{FOLDS + 8} cells: 0 done, 0 failed, {FOLDS + 8} to run"
    assert cells in capsys.readouterr().out
    shutil.copytree(whole, "results", dirs_exist_ok=True)
    assert main(["run", *words, "plan=true"]) == 0
    assert ", 0 to run in 0 batches" in capsys.readouterr().out
    assert main(["status"]) == 0
    last_row = capsys.readouterr().out.splitlines()[-3]
    assert " 0 " in last_row


def test_a_holdout_trains_on_nine_tenths_and_then_on_all_rows(words):
    assert main(["run", *words, "cv=holdout", "method=joint_log_dlm", "seeds=[0]"]) == 0
    rows = ResultsFolder("results").table
    records = list(Store("results").own_records())
    folds = [record.cell for record in records if record.cell.fold is not None]
    assert {cell.training_rows for cell in folds} == {61}
    assert len(folds) == len(BETAS)
    assert (rows["n"] == 67).all()
    assert (rows["cv"] == "holdout").all()


def held_out_nll_of_rows(X, y, beta):
    """The mean NLL of ELBO's rows, each under the q of all others at the hyperparameters of all."""
    settings = dlmexp.Settings(lr=0.1, iterations=LIMIT, window=None)
    model = dlmexp.Model("rbf", "gaussian", M=M)
    (fit,) = dlmexp.fit(
        X[None], y[None], model, "elbo", betas=beta, settings=settings, device="cpu"
    )
    losses = []
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        (without,) = dlmexp.fit(
            X[others][None],
            y[others][None],
            model,
            "elbo",
            beta,
            hyperparameters=fit.hyperparameters,
            device="cpu",
        )
        prediction = without.predict(X[[row]])
        assert prediction.variance is not None
        losses.append(-norm.logpdf(y[row], prediction.mean[0], np.sqrt(prediction.variance[0])))
    return np.mean(losses)


def test_leaving_one_out_selects_as_a_loop_over_rows_does_and_trains_each_beta_once(words):
    arguments = [*words, "cv=loo", "method=[elbo,beta_elbo,fitc]", "seeds=[0]"]
    assert main(["run", *arguments]) == 0
    rows = ResultsFolder("results").table
    assert (rows["status"] == "done").all()
    assert (rows["n"] == 67).all(), "validation rows are trained on"
    assert (rows["cv"] == "loo").all()
    assert len(list(Store("results").own_records())) == 1 + len(BETAS) + 1
    X, y = table()
    parts = parts_of_table(0)
    train = np.concatenate([parts.train, parts.validation])
    inputs = (X[train] - X[train].mean(0)) / X[train].std(0)
    targets = (y[train] - y[train].mean()) / y[train].std()
    losses = {beta: held_out_nll_of_rows(inputs, targets, beta) for beta in BETAS}
    is_selected = (rows["method"] == "beta_elbo") & (rows["selected_by"] == "nll")
    (selected,) = lines(rows[is_selected])
    assert selected.beta == best_beta(losses)
    assert selected.validation_nll == pytest.approx(losses[selected.beta], rel=1e-6)
    assert rows["recalibration_factor"].notna().all()
    assert rows["test_recalibrated_nll"].notna().all()


def test_leaving_one_out_is_refused_for_a_method_without_a_closed_form(words, capsys):
    assert main(["run", *words, "cv=loo"]) == 2
    message = (
        "cv=loo needs a closed form over q, which method fixed_log_dlm does not have on csv: "
        "leave it out, or give cv=5"
    )
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("results").exists()
