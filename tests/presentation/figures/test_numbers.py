"""From rows of the table to points: what is averaged, what is counted, and what never meets."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import warnings
from io import StringIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from scipy import stats

from dlmexp.presentation.figures.declared.parts import BINARY_LOG, against_size
from dlmexp.presentation.figures.declared.worth import effects_panel
from dlmexp.presentation.figures.kinds.kind import EFFECT_METHODS
from dlmexp.presentation.figures.looks import PAGE
from dlmexp.presentation.figures.numbers import Measured, measure, panel_rows
from dlmexp.presentation.figures.panels import Line, Panel, estimators
from dlmexp.presentation.figures.plot import Request, drawings
from dlmexp.presentation.figures.stats import BAYES_NLL, half_width, statistics
from tests.support.tidy import METHODS, RESULTS, Made, published, sweep

(PANEL,) = against_size(("nll",), BINARY_LOG, "class-log", ("banana",))


def rows(names: str, *cases: tuple, **about) -> list[dict]:
    """A row for each case, of which these are the columns."""
    return [about | dict(zip(names.split(), case, strict=True)) for case in cases]


def measured(panel: Panel, results: Made, **choice) -> Measured:
    return measure(panel, results, panel_rows(panel, results, {}), **choice)


def points(panel: Panel, results: Made, **choice) -> dict[str, pd.DataFrame]:
    return {one.line.method: one.points for one in measured(panel, results, **choice).series}


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.floats(-1e3, 1e3) | st.just(np.nan), min_size=3, max_size=3),
        min_size=1,
        max_size=24,
    )
)
def test_statistics_are_those_of_the_finite_values(rows):
    table = statistics([1, 2, 3], np.array(rows), len(rows))
    medians = statistics([1, 2, 3], np.array(rows), len(rows), median=True)
    for i, column in enumerate(np.array(rows).T):
        finite, row = column[np.isfinite(column)], table.iloc[i]
        assert (row["repetitions"], row["failed"]) == (len(finite), len(rows) - len(finite))
        assert row["mean"] == pytest.approx(finite.mean() if len(finite) else np.nan, nan_ok=True)
        quartiles = np.quantile(finite, [0.5, 0.25, 0.75]) if len(finite) else [np.nan] * 3
        assert [*medians.loc[i, ["median", "q25", "q75"]]] == pytest.approx(
            [*quartiles], nan_ok=True
        )
        if len(finite) > 1 and finite.std() > 1e-6:
            half = stats.sem(finite) * stats.t.ppf(0.975, len(finite) - 1)
            assert half_width(table)[i] == pytest.approx(half)
            assert row["std"] == pytest.approx(finite.std(ddof=1))


@pytest.mark.published
@pytest.mark.parametrize(
    ("folder", "names"),
    [
        (
            "paper",
            [
                "selection",
                "reg-log",
                "class-log",
                "count-learning",
                "bias",
                "calibration",
                "anatomy",
            ],
        ),
        ("more", ["samples", "edges", "inducing", "gain", "truth"]),
    ],
)
def test_published_numbers_are_made_from_the_records_and_drawn_with_the_caption_beside_them(
    folder, names
):
    found = list(drawings(published(folder), names, Request()))
    assert len(found) >= len(names)
    for drawn in found:
        with warnings.catch_warnings(action="error"):
            words = " ".join(text.get_text() for text in drawn.canvas.findobj(Text))
        assert drawn.figure.caption[:40] not in words
        assert drawn.canvas.get_figheight() <= PAGE
        assert "paper" in drawn.notes[0]
        expected = pd.read_csv(RESULTS / folder / "figures" / f"{drawn.name}.csv")
        ours = pd.read_csv(StringIO(drawn.csv.to_csv(index=False)))
        pd.testing.assert_frame_equal(ours, expected, check_dtype=False, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("name", BAYES_NLL)
def test_excess_is_over_the_log_loss_of_the_truth(name: str):
    rng, a = np.random.default_rng(1), 2 / np.sqrt(20)
    y = rng.integers(0, 2, 200_000)
    X = rng.standard_normal((len(y), 20), dtype=np.float32)
    if name == "twonorm_drawn":
        odds = 2 * a * (X + a * (2 * y - 1)[:, None]).sum(1)
    else:
        X = X * (2 - y)[:, None] + a * y[:, None]
        odds = (X**2).sum(1) / 8 + 20 * np.log(2) - ((X - a) ** 2).sum(1) / 2
    losses = np.logaddexp(0, -(2 * y - 1) * odds)
    assert BAYES_NLL[name] == pytest.approx(losses.mean(), abs=4 * losses.std() / len(y) ** 0.5)
    results = Made(rows("seed test_nll", (0, 0.5), (1, 0.7), dataset=name))
    (panel,) = against_size(("excess_nll",), BINARY_LOG, "class-log", (name,))
    assert points(panel, results)["elbo"]["mean"].tolist() == pytest.approx([0.6 - BAYES_NLL[name]])


def test_differences_are_taken_within_repetitions():
    cases = [("elbo", seed, 10.0 * seed) for seed in range(4)]
    cases += [("joint_log_dlm", seed, 9.9 * seed - 1) for seed in range(1, 5)]
    table = points(PANEL, Made(rows("method seed test_nll", *cases)))["joint_log_dlm"].iloc[0]
    assert table["minus_elbo"] == pytest.approx(-1.2), "over the common seeds 1, 2, 3"
    assert (table["low"], table["high"]) == pytest.approx(
        stats.t.interval(0.95, 2, -1.2, 0.1 / 3**0.5)
    )


def test_failed_is_counted_and_incomplete_is_left_out():
    cases = [(seed, "done", 0, 1.0) for seed in range(3)]
    cases += [(3, "failed", 0, np.nan), (4, "done", 0, np.inf), (5, "missing", 1, np.nan)]
    found = measured(PANEL, Made(rows("seed status missing test_nll", *cases)))
    row = found.series[0].points.iloc[0]
    assert (row["mean"], row["repetitions"], row["failed"]) == (1.0, 3, 2)
    assert any("1 repetition " in note for note in found.notes)
    assert any("2 repetitions " in note for note in found.notes)


def test_a_cell_of_two_groups_counts_once():
    results = Made([{"method": "joint_log_dlm", "beta": 0.1, "key": "same", "test_nll": 1.0}] * 2)
    results.candidates["group"] = [0, 1]
    panel = Panel(
        "sizes", "banana", "nll", (Line("joint_log_dlm", beta=0.1, names="beta"),), "class-log"
    )
    assert points(panel, results)["joint_log_dlm"][
        ["repetitions", "failed"]
    ].to_numpy().tolist() == [[1, 0]]


def test_a_curve_that_has_stopped_keeps_its_last_value():
    panel = Panel(
        "curve", "abalone", "nll", estimators("joint_log_dlm", 0.1, ("bmc", (1,))), "count-learning"
    )
    about = {
        "dataset": "abalone",
        "method": "joint_log_dlm",
        "role": "curve",
        "estimator": "bmc",
        "samples": 1.0,
    }
    x = [np.arange(0, 60 + 10 * seed, 10) for seed in range(3)]
    arrays = {
        f"key{s}": {"evaluated_at": x[s], "test_nll": 2 + s + np.exp(-x[s] / 10.0)}
        for s in range(3)
    }
    (table,) = points(
        panel, Made([about | {"beta": 0.1, "seed": seed} for seed in range(3)], arrays)
    ).values()
    assert table["x"].max() == 70
    assert table["mean"].iloc[-1] == pytest.approx(
        np.mean([2 + s + np.exp(-5 - s) for s in range(3)])
    )


def test_a_protocol_without_whitened_coordinates_is_drawn_in_those_that_it_has():
    assert not points(PANEL, Made(sweep(parameterisation="unwhitened")))["elbo"].empty


OTHER = {
    "protocol": "released", "changes": {"training.lr": 0.01}, "evaluate": "10", "data": "other", "split": "counts-v2",
    "parameterisation": "unwhitened", "role": "anatomy", "dataset": "thyroid", "estimator": "quadrature",
}  # fmt: skip
SOME = st.sets(st.sampled_from(METHODS), min_size=1)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(OTHER)), SOME, SOME, st.booleans())
def test_runs_that_differ_in_a_setting_never_share_a_point(setting, first, second, beside):
    """The second run is a thousand times worse: a mean between the two would have some of both in
    it."""
    both = [
        *sweep(sorted(first)),
        *sweep(sorted(second), shift=1000.0, **{setting: OTHER[setting]}),
    ]
    request = Request(compare_protocols=beside and setting == "protocol")
    for one in (
        one for drawn in drawings(Made(both), ["class-log"], request) for one in drawn.measured
    ):
        means = [mean for series in one.filled for mean in series.points["mean"]]
        assert all(mean < 100 for mean in means) or all(mean > 900 for mean in means)
        gaps = [
            gap
            for s in one.filled
            if "minus_elbo" in s.points
            for gap in s.points["minus_elbo"].dropna()
        ]
        assert all(abs(gap) < 100 for gap in gaps)


def test_an_effect_needs_all_ways_to_train_that_it_compares():
    cases = [
        (method, seed, 1.0) for method in EFFECT_METHODS if method != "fitc" for seed in range(2)
    ]
    made = Made(rows("method seed test_nll", *cases, dataset="pol", role="anatomy"))
    assert [one.line.effect for one in measured(effects_panel("pol", "reg"), made).filled] == [
        "whole",
        "beta",
        "objective",
    ]
