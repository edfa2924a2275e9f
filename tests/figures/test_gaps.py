"""What is missing is said, with the command that computes it."""

from dlmexp.figures.families.classification import against_n
from dlmexp.figures.gaps import caveats, gaps
from tests.support.made_up import failed, fit, method_cell, sweep
from tests.support.series import panel_series

PANEL = against_n("banana", "nll", "class-log")
ALL = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
SIZES = [100, 200, 500, 1000, 2000]


def test_nothing_run(results) -> None:
    (gap,) = gaps(PANEL, panel_series(PANEL, results(method_cell("elbo", "pol"))))
    assert gap.what == "nothing run"
    assert gap.command == "dlmexp run experiment=class-log dataset=banana"


def test_complete(results) -> None:
    found = results(*sweep("banana", ALL, SIZES, range(5), 2))
    assert gaps(PANEL, panel_series(PANEL, found)) == []


def test_missing_line_size_and_repetitions(results) -> None:
    found = results(
        *sweep("banana", ("elbo", "joint_log_dlm"), SIZES, range(3), 2),
        *sweep("banana", ("fixed_log_dlm",), SIZES[:4], range(3), 2),
    )
    said = [gap.what for gap in gaps(PANEL, panel_series(PANEL, found))]
    assert "no n = 2000 for fixed DLM" in said
    assert "3 of 5 repetitions" in said


def test_missing_lines_are_named(results) -> None:
    found = results(*sweep("banana", ("elbo",), SIZES, range(5), 1))
    assert gaps(PANEL, panel_series(PANEL, found))[0].what == "no β-ELBO, joint DLM, fixed DLM"


def test_failures_are_caveats_not_gaps(results) -> None:
    done = [
        fit(method_cell("elbo", "banana", n=n, seed=s), nll=0.1) for n in SIZES for s in range(5) if (n, s) != (100, 4)
    ]
    series = panel_series(PANEL, results(*done, failed(method_cell("elbo", "banana", n=100, seed=4))))
    assert not any("repetitions" in gap.what for gap in gaps(PANEL, series))
    assert any("ELBO: up to 1 repetition of a point failed" in text for text in caveats(series))
    assert any("1 candidate cell failed" in text for text in caveats(series))


def test_an_incomplete_grid_is_a_caveat(results) -> None:
    cells = [*sweep("banana", ("joint_log_dlm",), [100], range(2), 4)][:-1]
    assert "joint DLM: beta is selected from an incomplete grid in some repetitions" in caveats(
        panel_series(PANEL, results(*cells))
    )
