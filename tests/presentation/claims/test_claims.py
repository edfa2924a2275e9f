"""What makes claims hold, fail or be told otherwise, where the published results
(tests/cli/test_published.py) do not show it; margins, columns and settings, what is said where
something is missing, and the command."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false, reportGeneralTypeIssues=false

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlmexp.cli import main
from dlmexp.experiment.plan.cell import Changes
from dlmexp.presentation.claims import judge as judging
from dlmexp.presentation.claims.bounds import GRID, excess, table_rows
from dlmexp.presentation.claims.claim import Part
from dlmexp.presentation.claims.columns import VerdictColumn, rows_of
from dlmexp.presentation.claims.evidence import DLM, Evidence
from tests.support.tidy import Made, fits

Rows = list[dict[str, Any]]


def lines(dataset: str, metric: str = "nll", trivial: float = 1.0, **means: float) -> Rows:
    """Methods with a mean each."""
    return [
        row
        for name, mean in means.items()
        for row in fits(dataset, name, mean, metric=metric, trivial=trivial)
    ]


def judged(rows: Rows, number: int, **options: Any) -> judging.Judged:
    """The verdicts on one claim and its parts that were run."""
    return judging.judge(Made(rows, options.pop("arrays", None)), [number], **options)


def words(rows: Rows, number: int, **options: Any) -> str:
    return judged(rows, number, **options).verdicts[0].words


def parts_run(rows: Rows, number: int) -> list[Part]:
    """The parts of a claim that were run."""
    return judged(rows, number).verdicts[0].parts_run


LOW, HIGH = 0.2, 0.5
OTHERS = dict.fromkeys(("elbo", "beta_elbo", "fitc", "joint_log_dlm", "fixed_log_dlm"), HIGH)
ALL = OTHERS | dict.fromkeys(("joint_sq_dlm", "fixed_sq_dlm"), HIGH)
RATES = dict.fromkeys(("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm"), 0.1)
WITHIN = "within the margin"


def curves(dataset: str, **kinds: float) -> Rows:
    """Ends of learning curves of joint DLM at beta = 0.1: exact, bmc_10, ups_1, ...; with ELBO for
    the margin."""
    found = fits(dataset, "beta_elbo", HIGH, sizes=(900,), role="curve", beta=1.0)
    for kind, mean in kinds.items():
        name, _, samples = kind.rpartition("_") if kind != "exact" else (kind, "", "nan")
        line = {"estimator": name, "samples": float(samples), "beta": 0.1, "role": "curve"}
        rows = fits(dataset, "joint_log_dlm", mean, sizes=(900,))
        found += [row | line for row in rows]
    return found


def on_counts(*dlm: float) -> Rows:
    """Count data, with a mean of joint DLM for each dataset."""
    names = ("abalone", "peds1_dir0", "peds1_dir1", "peds1_dir2")
    means = {"elbo": HIGH, "beta_elbo": HIGH, "fixed_log_dlm": HIGH}
    return [
        row
        for name, mean in zip(names, dlm, strict=False)
        for row in lines(name, **means, joint_log_dlm=mean)
    ]


SAMPLED = {"converged": False, "samples": 10.0, "estimator": "bmc"}
MANY = fits("banana", "elbo", 0.5, sizes=tuple(range(100, 2100, 100)))


@pytest.mark.parametrize(
    ("number", "rows", "expected"),
    [
        (1, lines("pol", **OTHERS | {"joint_log_dlm": LOW}), "holds on 1 of 3"),
        (1, lines("pol", **OTHERS | {"fitc": LOW}), "fails on 1 of 3"),
        (1, lines("sarcos_test", **OTHERS | {"joint_log_dlm": LOW}), "stand-ins: holds"),
        (2, lines("cadata", **OTHERS | {"fixed_log_dlm": LOW}), "holds"),
        (2, lines("cadata", **OTHERS), "no difference found"),
        (3, lines("pol", "mse", **ALL | {"joint_sq_dlm": LOW}), "holds on 1 of 4"),
        (4, lines("sarcos", "mse", **ALL | {"joint_sq_dlm": LOW}), "mixed"),
        (4, lines("sarcos", "mse", **ALL | {"joint_sq_dlm": LOW, "fixed_sq_dlm": LOW}), "holds"),
        (5, lines("sarcos", **OTHERS | {"beta_elbo": 0.7}), "fails"),
        (7, lines("ringnorm", **OTHERS | {"joint_log_dlm": LOW, "fixed_log_dlm": LOW}), "holds on 1 of 4"),
        (7, lines("ringnorm", **OTHERS | {"joint_log_dlm": 0.49, "fixed_log_dlm": 0.49}), f"better {WITHIN} on 1 of 4"),
        (7, lines("banana", **OTHERS), "holds on 1 of 4"),
        (8, lines("banana", "error", **RATES), "holds on 1 of 8"),
        (8, lines("banana", "error", **RATES | dict.fromkeys(DLM, 0.105)), f"worse {WITHIN} on 1 of 8"),
        (8, lines("abalone", "mre", elbo=0.2, beta_elbo=0.2, joint_log_dlm=0.3, fixed_log_dlm=0.3), "fails on 1 of 8"),
        (11, curves("flights", exact=0.3, ups_10=0.3, bmc_100=0.3, bmc_10=0.4, ups_1=0.35), "stand-ins: holds"),
        (11, curves("flights", exact=0.3, ups_10=0.4, bmc_100=0.4, bmc_10=0.3, ups_1=0.5), "stand-ins: fails"),
        (12, curves("flights", bmc_1=0.3, smooth_bmc_1=0.3), "stand-ins: holds"),
        (12, curves("flights", bmc_1=0.3, smooth_bmc_1=0.31), "stand-ins: holds"),
        (13, curves("abalone", bmc_1=0.3, ups_1=0.3, smooth_bmc_1=0.4), "mixed on 1 of 2"),
        (14, curves("pol", exact=0.3, bmc_1=0.5, bmc_10=0.3, bmc_100=0.3), "holds on 1 of 4"),
        (14, curves("pol", exact=0.3, bmc_1=0.3, bmc_10=0.5, bmc_100=0.5), "fails on 1 of 4"),
        (9, on_counts(0.9, LOW), "1 of 2 seen"),
        (9, on_counts(LOW, LOW, LOW, LOW), "holds"),
        (9, on_counts(LOW, LOW, LOW, 0.9), "holds"),
        (9, on_counts(0.9, 0.9, 0.9, 0.9), "fails"),
        (18, MANY, "holds"),
        # no dataset is hidden
        (18, MANY + fits("thyroid", "elbo", 0.5, sizes=(100,), converged=False), "mixed"),
        (18, fits("banana", "elbo", 0.5, converged=False), "fails"),
        (18, MANY + fits("banana", "joint_log_dlm", 0.5, **SAMPLED), "holds"),  # counted apart
        (18, MANY + fits("banana", "joint_log_dlm", 0.5, converged=False, role="anatomy"), "holds"),
        (20, fits("pol", "beta_elbo", 0.5, beta=0.1), "holds on 1 of 12"),
        (20, fits("pol", "beta_elbo", 0.5, beta=2.0), "fails on 1 of 12"),
    ],
)  # fmt: skip
def test_verdict(number, rows, expected):
    assert words(rows, number) == expected


def test_rejections_need_rates_after_the_first_iterations():
    facts = {
        "estimator": "ups",
        "samples": 10.0,
        "sampler": "rejection",
        "role": "timing",
        "acceptance": 0.5,
    }
    rows = fits("abalone", "joint_log_dlm", 0.5, sizes=(900,))
    rows = [row | facts | {"key": f"r{i}"} for i, row in enumerate(rows)]
    assert words(rows, 16) == "undecidable"
    for rates, expected in (([0.01, 1 / 3, 1 / 3], "holds"), ([1 / 3, 0.01, 0.01], "fails")):
        arrays = {row["key"]: {"acceptance": np.array(rates)} for row in rows}
        assert words(rows, 16, arrays=arrays) == expected


def test_a_preset_is_no_run_of_the_paper_and_its_cap_no_failure():
    quick = fits("banana", "elbo", 0.5, protocol="quick", converged=False)
    found = judged(quick, 18)
    assert [column.label for column in found.columns] == ["quick (preset)"]
    assert [verdict.words for verdict in found.verdicts] == ["undecidable"]
    both = judged(quick + fits("banana", "elbo", 0.5), 18)
    assert [column.label for column in both.columns] == ["paper"]
    assert both.left_out == ["--protocol quick"]


def test_table_1_holds_and_a_wrong_bound_is_found():
    assert words(fits("banana", "elbo", 0.5), 17) == "holds"
    step = GRID[1] - GRID[0]
    for name, row in table_rows():
        assert (
            np.abs(np.gradient(row.p, step) - row.first)[1:-1].max()
            < 0.02 * np.abs(row.first).max() + 1e-9
        ), name
        low, high = row.bounds.first
        if row.first.max() > 0.9 * high:  # a tight bound
            wrong = replace(row, bounds=replace(row.bounds, first=(low, 0.8 * high)))
            assert excess(wrong) > 0, name


GOOD = (
    fits("ringnorm", "elbo", 0.5)
    + fits("ringnorm", "joint_log_dlm", 0.2)
    + fits("ringnorm", "fixed_log_dlm", 0.2)
)


def under(protocol: str, changed: Changes | None = None, gap: float = 0.0) -> list[dict]:
    rows = [row | {"protocol": protocol, "changes": changed or {}} for row in GOOD]
    return [row | {"test_nll": row["test_nll"] + gap * (row["method"] != "elbo")} for row in rows]


def columns(rows: list[dict], **options) -> dict[str, str]:
    return {verdict.column: verdict.words for verdict in judged(rows, 7, **options).verdicts}


def test_protocols_are_columns_and_never_mix_nor_do_other_contents_of_a_dataset():
    both = columns(under("released", gap=0.6) + under("paper"))
    assert both == {"paper": "holds on 1 of 4", "released": "fails on 1 of 4"}
    other = [row | {"data": "other", "test_nll": 9.0} for row in under("paper") if row["seed"] < 2]
    assert columns(under("paper") + other) == {"paper": "holds on 1 of 4"}


def test_changed_settings_are_columns_only_when_asked_for():
    rows = (
        under("paper")
        + under("paper", {"training.lr": 0.01}, gap=0.6)
        + under("paper", {"M": 50}, gap=0.6)
    )
    assert columns(rows) == {"paper": "holds on 1 of 4"}
    assert judged(rows, 7).left_out == [
        "--protocol paper --where training.lr=0.01",
        "--protocol paper --where M=50",
    ]
    assert columns(rows, where=["training.lr=0.01"]) == {
        "paper, training.lr=0.01": "fails on 1 of 4"
    }
    assert columns(under("paper", {"M": 50})) == {
        "paper, M=50": "holds on 1 of 4"
    }  # there is nothing else


@pytest.fixture
def run(monkeypatch, capsys):
    """What `dlmexp claims` prints on made-up results."""
    both = Made(under("paper") + under("released", gap=0.6))
    monkeypatch.setattr("dlmexp.experiment.records.results.ResultsFolder", lambda folder: both)

    def call(*words: str, status: int = 0) -> str:
        assert main(["claims", *words]) == status
        printed = capsys.readouterr()
        return printed.err if status else printed.out

    return call


@pytest.mark.slow
def test_command(run):
    """Markdown and JSON in full are those of the published claims (tests/cli/test_published.py)."""
    assert len([line for line in run().splitlines() if line[:4].strip().isdigit()]) == 22
    some = run("7", "18", "--details")
    assert [line.split(".")[0] for line in some.splitlines() if line.startswith("## ")] == [
        "## 7",
        "## 18",
    ]
    assert "margin 0.025" in some  # 5 % of what ELBO explains
    first, second = json.loads(run("18", "7", "--json"))
    assert (first["number"], second["number"]) == (7, 18)
    part = next(
        each for each in first["protocols"]["paper"]["parts"] if each["dataset"] == "ringnorm"
    )
    assert part["states"] == {"100": "supported", "200": "supported", "500": "supported"}
    numbers = [
        value for row in part["comparisons"] for value in row.values() if isinstance(value, float)
    ]
    assert numbers
    assert all(float(f"{value:.6g}") == value for value in numbers), "six digits"
    for typed in ("7 --where nosuch=1", "7 --where lr=7", "7 --protocol annealed", "23"):
        assert typed.split()[-1] in run(*typed.split(), status=2)


def evidence(rows: list[dict]) -> Evidence:
    made = Made(rows)
    frames = [rows_of(frame, VerdictColumn("paper")) for frame in (made.table, made.candidates)]
    return Evidence(made, *frames)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("dataset", "metric", "elbo", "trivial", "margin"),
    [
        ("banana", "nll", 0.5, 0.7, 0.01),  # 5 % of what is explained
        (
            "ringnorm",
            "nll",
            0.05,
            0.7,
            0.005,
        ),  # 10 % of ELBO's NLL: 5 % of what is explained is half of it
        ("ringnorm", "error", 0.02, 0.5, 0.002),
        (
            "pol",
            "nll",
            0.0,
            1.4,
            0.07,
        ),  # the NLL of a density has no zero: at 0 and below it is as good as elsewhere
        ("pol", "nll", -0.6, 1.4, 0.1),
        ("pol", "mse", 0.1, 1.0, 0.01),
        ("banana", "nll", 0.8, 0.7, np.nan),  # ELBO explains nothing
    ],
)
def test_margin(dataset, metric, elbo, trivial, margin):
    rows = fits(dataset, "elbo", elbo, metric=metric, scatter=0, trivial=trivial)
    assert evidence(rows).margin(dataset, metric) == pytest.approx(np.full(3, margin), nan_ok=True)


def test_failed_repetitions_are_left_out_and_counted():
    rows = fits("ringnorm", "elbo", 0.2) + fits("ringnorm", "joint_log_dlm", 0.1)
    rows += fits("ringnorm", "fixed_log_dlm", 0.1)
    rows[-1] |= {"status": "failed", "test_nll": np.nan}
    rows[-2] |= {"test_nll": np.inf}
    parts = [part for part in parts_run(rows, 7) if part.dataset == "ringnorm"]
    assert [part.repetitions for part in parts] == [5, 3]
    assert [part.verdict for part in parts] == ["holds", "holds"]
    assert "2 failed" in parts[1].reason


def test_too_few_repetitions_and_a_rival_that_was_not_run_are_said():
    rows = fits("ringnorm", "elbo", 0.2, seeds=2) + fits("ringnorm", "joint_log_dlm", 0.1, seeds=2)
    assert [words(rows, 7)] == ["too few repetitions (2 of 3)"]
    rows = (
        fits("pol", "elbo", 0.5) + fits("pol", "joint_log_dlm", 0.1) + fits("pol", "beta_elbo", 0.5)
    )
    part = next(part for part in parts_run(rows, 1) if part.dataset == "pol")
    assert part.verdict == "undecidable"
    assert "FITC" in part.reason
