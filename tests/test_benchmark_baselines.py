"""Baselines from scikit-learn (`scripts.benchmark baselines`) against independent computations."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dlmexp.experiment.records.baselines import COLUMNS, read_baselines

pytest.importorskip("sklearn")

from scripts.benchmark import baselines


def targets(task: str, X: np.ndarray) -> np.ndarray:
    """Return targets whose log-odds, log rate or mean is linear in the first feature."""
    rng = np.random.default_rng(1)
    f = 0.8 * X[:, 0] + 0.4
    if task == "regression":
        return f + 0.5 * rng.normal(size=len(X))
    if task == "binary":
        return (rng.random(len(X)) < 1 / (1 + np.exp(-f))).astype(float)
    return rng.poisson(np.exp(f)).astype(float)


@pytest.mark.parametrize("task", ["regression", "binary", "count"])
def test_linear_baseline_finds_the_law_that_made_the_data(task: str):
    X = np.random.default_rng(0).normal(size=(2000, 3))
    baseline = baselines.fit_linear(task, X, targets(task, X))
    mean = baseline.predict(np.zeros((1, 3)))[0]
    truth = {"regression": 0.4, "binary": 1 / (1 + np.exp(-0.4)), "count": np.exp(0.4)}
    assert mean == pytest.approx(truth[task], rel=0.08)
    if task == "regression":
        assert baseline.variance == pytest.approx(0.25, rel=0.1)


@pytest.mark.parametrize("rate", [0.03, 1.0, 7.5, 120.0])
@pytest.mark.parametrize("y", [0.0, 2.0, 90.0])
def test_scores_of_a_poisson_equal_sums_over_counts(rate: float, y: float):
    counts = np.arange(2000)
    F = np.cumsum(stats.poisson.pmf(counts, rate))
    crps = ((F - (counts >= y)) ** 2).sum()
    inside = np.searchsorted(F, 0.025) <= y <= np.searchsorted(F, 0.975)
    scores = baselines.poisson_scores(np.array([rate]), np.array([y]))
    assert scores.crps == pytest.approx(crps, abs=1e-9)
    assert scores.coverage == float(inside)


def test_table_has_a_row_for_each_method_and_split_that_leaderboards_read(
    data_root: Path, tmp_path: Path
):
    for name, folder in (("uci_yacht", "uci/yacht"), ("ionosphere", "binary")):
        if not (data_root / folder).is_dir():
            pytest.skip(f"no {name} there")
    words = ["uci_yacht", "ionosphere", "--data-root", str(data_root), "--seeds", "1"]
    baselines.main([*words, "--out", str(tmp_path)])
    table = read_baselines([tmp_path]).set_index(["dataset", "method"])
    assert list(table.reset_index().columns.sort_values()) == sorted(COLUMNS)
    assert len(table) == 4
    yacht = table.loc["uci_yacht"]
    assert set(yacht["n"]) == {277}
    # The linear model, fitted anew from the raw files: ridge with next to no penalty.
    raw = np.loadtxt(data_root / "uci/yacht/data.csv.gz", delimiter=",")
    is_test = np.loadtxt(data_root / "uci/yacht/test_mask.csv.gz", delimiter=",")[:, 0] == 1
    train = raw[~is_test]
    design = np.column_stack([raw[:, :-1], np.ones(len(raw))])
    weights = np.linalg.lstsq(design[~is_test], train[:, -1], rcond=None)[0]
    errors = (raw[:, -1] - design @ weights)[is_test] / train[:, -1].std()
    assert yacht.loc["linear", "test_mse"] == pytest.approx((errors**2).mean(), rel=0.02)
    assert yacht.loc["trees", "test_nll"] < yacht.loc["linear", "test_nll"]  # pyright: ignore[reportOperatorIssue]
    assert table.loc[("ionosphere", "linear"), "test_error"] < 0.4  # pyright: ignore[reportOperatorIssue]


def test_datasets_that_the_folder_has_are_not_fitted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    words = ["gp_constant", "--out", str(tmp_path), "--seeds"]
    monkeypatch.setattr(baselines, "METHODS", {"linear": baselines.fit_linear})
    baselines.main([*words, "1"])
    first = read_baselines([tmp_path])
    baselines.main([*words, "2"])
    both = read_baselines([tmp_path])
    assert list(first["seed"]) == [0]
    assert list(both["seed"]) == [0, 1]

    def fail(*_: object) -> None:
        raise AssertionError("fitted again")

    monkeypatch.setattr(baselines, "METHODS", {"linear": fail})
    baselines.main([*words, "2"])
    assert "already" in capsys.readouterr().out
    assert read_baselines([tmp_path]).equals(both)
    baselines.main([*words, "2", "--untimed"])
    assert read_baselines([tmp_path]).equals(both.assign(seconds=np.nan))
