"""Leaderboards of made-up tables: who is on them, on which data sets, in which order."""

# Made-up tables stand where results are expected.
# pyright: reportArgumentType=false

import numpy as np
import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.ranking.board import Board, boards
from dlmexp.presentation.ranking.metrics import METRICS
from dlmexp.presentation.ranking.render import distinct_labels, median_gain, outcomes
from dlmexp.presentation.ranking.splits import scores_of_splits
from tests.support.tidy import Made, fits

DATA_SETS = ("pol", "cadata", "song", "sarcos")
GOOD = {"elbo": 0.5, "beta_elbo": 0.4, "joint_log_dlm": 0.1}


def rows(methods=GOOD, data_sets=DATA_SETS, **changes):
    """Return fits of methods with a mean each on data sets; `scatter` is that between splits."""
    made = []
    for shift, dataset in enumerate(data_sets):
        for method, mean in methods.items():
            made += fits(dataset, method, mean + shift, sizes=(100,), **changes)
    return made


def only_board(made, metric="nll", **options) -> Board:
    (board,) = boards(Made(made), METRICS[metric], **options)
    return board


def baseline(**values):
    usual = {"method": "ridge", "dataset": "pol", "seed": 0, "n": 100, "trained_by": "scikit-learn"}
    return usual | {"test_nll": 1.0, "test_mse": 4.0, "coverage_95": 0.9, "seconds": 1.0} | values


def test_better_methods_stand_first():
    board = only_board(rows())
    assert distinct_labels(board) == ["joint DLM", "β-ELBO", "ELBO"]
    assert board.mean_rank.tolist() == [1.0, 2.0, 3.0]
    assert board.data_sets == sorted(DATA_SETS)
    assert set(board.split_counts.values()) == {5}


def test_wins_and_gains_are_against_the_reference():
    board = only_board(rows())
    assert [outcomes(board, k) for k in range(3)] == [(4, 0, 0), (4, 0, 0), (0, 4, 0)]
    assert median_gain(board, 0) == pytest.approx(np.exp(0.4) - 1, rel=0.02)
    assert median_gain(board, 2) == 0
    other = only_board(rows(), against="joint_log_dlm")
    assert outcomes(other, 2) == (0, 0, 4)


def test_gain_of_other_metrics_is_a_share():
    board = only_board(rows({"elbo": 4.0, "fitc": 1.0}, ["pol"], metric="mse"), "rmse")
    assert board.means[:, 0] == pytest.approx([1.0, 2.0], rel=0.01)
    assert median_gain(board, 0) == pytest.approx(0.5, rel=0.01)


def test_coverage_is_ranked_by_its_distance_from_nominal():
    methods = {"elbo": 0.99, "fitc": 0.94, "joint_log_dlm": 0.80}
    made = rows(methods, ["pol", "song"], metric="coverage_95", scatter=0.0)
    made = [row | {"test_coverage_95": methods[row["method"]]} for row in made]
    board = only_board(made, "coverage")
    assert distinct_labels(board) == ["FITC", "ELBO", "joint DLM"]
    assert board.means[:, 0] == pytest.approx([0.01, 0.04, 0.15])


def test_method_that_lacks_data_sets_is_ranked_on_the_common_ones():
    made = rows() + rows({"exact": 0.0}, ["pol", "song"])
    main, common = boards(Made(made), METRICS["nll"])
    assert "exact GP" not in distinct_labels(main)
    assert main.data_sets == sorted(DATA_SETS)
    assert distinct_labels(common)[0] == "exact GP"
    assert common.data_sets == ["pol", "song"]
    counts = {row.label: row.data_set_count for row in common.contenders}
    assert counts == {"ELBO": 4, "β-ELBO": 4, "joint DLM": 4, "exact GP": 2}
    assert common.data_sets_in_all == 4


def test_board_names_the_methods_that_it_lacks():
    main, common = boards(Made(rows() + rows({"exact": 0.0}, ["pol", "song"])), METRICS["nll"])
    note = (
        "not in this table, as they lack data sets: exact GP (2); "
        "the table of all 4 methods has them"
    )
    assert main.notes == [note]
    assert common.notes == []


def test_board_without_the_reference_says_so():
    made = rows() + rows({"exact": 0.0}, ["pol", "song"])
    main, common = boards(Made(made), METRICS["nll"], against="exact")
    assert "no wins and gains: exact GP is not in this table" in main.notes
    assert common.reference == 0


def test_other_contents_of_a_data_set_are_left_out_and_said():
    mine = rows({"mine": 0.0}, ["pol"], data="other")
    board = only_board(rows() + mine)
    assert "mine" not in distinct_labels(board)
    assert any(note.startswith("pol: run with 2 different contents") for note in board.notes)


def test_method_without_common_data_sets_is_left_out_and_named():
    made = rows() + rows({"fitc": 0.0}, ["sarcos_test"])
    assert any("FITC" in note for note in only_board(made).notes)


def test_split_that_one_method_lacks_counts_for_none():
    made = [row for row in rows() if (row["method"], row["seed"]) != ("elbo", 1)]
    board = only_board(made)
    assert set(board.split_counts.values()) == {4}
    assert distinct_labels(board) == ["joint DLM", "β-ELBO", "ELBO"]


def test_failed_split_counts_for_none():
    made = rows()
    made[0] |= {"status": "failed", "test_nll": np.nan}
    assert min(only_board(made).split_counts.values()) == 4


def test_kernels_and_tasks_have_boards_of_their_own():
    made = (
        rows()
        + rows(kernel="matern52", ard=True, changes={"kernel": "matern52", "ard": True})
        + rows(data_sets=["banana"])
    )
    subjects = {
        (board.subject.kernel, board.subject.task) for board in boards(Made(made), METRICS["nll"])
    }
    assert subjects == {("rbf", "regression"), ("matern52, ARD", "regression"), ("rbf", "binary")}


@pytest.mark.parametrize(
    "difference",
    [{"M": 50, "changes": {"M": 50}}, {"M": 50}, {"changes": {"training.lr": 0.01}}, {"protocol": "annealed"},
     {"split": "regression-tenth-v1"}, {"estimator": "quadrature"}],
    ids=["M", "factor", "lr", "protocol", "validation", "estimator"],
)  # fmt: skip
def test_different_settings_never_share_a_row(difference):
    made = rows({"elbo": 0.5, "fitc": 0.2}, split="regression-v1")
    other = rows({"elbo": 0.9}, **{"split": "regression-v1"} | difference)
    board = only_board(made + other)
    labels = distinct_labels(board)
    assert len(labels) == len(set(labels)) == 3
    elbo = [k for k, row in enumerate(board.contenders) if row.method == "elbo"]
    assert sorted(board.means[elbo, 0].round(1).tolist()) == [1.5, 1.9]


def test_setting_of_a_data_set_makes_no_row_of_its_own():
    """A comparison selects by folds on small data sets, and has more inducing inputs on large."""
    made = rows(data_sets=["pol"], M=1024) + rows(data_sets=["song"], split="s-pool-v1")
    board = only_board(made + rows(data_sets=["cadata"]))
    assert len(board.contenders) == 3
    assert len(board.data_sets) == 3


def test_rows_for_validation_that_are_trained_on_count():
    made = rows(
        {"elbo": 0.5}, ["uci_yacht"], task="regression", split="published-v1", stands_for=None
    )
    made += rows(
        {"exact": 0.2},
        ["uci_yacht"],
        task="regression",
        split="published-train-v1",
        stands_for=None,
    )
    made = [row | {"n": 277 if row["method"] == "elbo" else 249} for row in made]
    board = only_board(made)
    assert [row.training_rows for row in board.contenders] == [
        {"uci_yacht": 277},
        {"uci_yacht": 277},
    ]


def test_same_cell_asked_for_by_two_experiments_is_one_row():
    made = [row | {"key": f"{row['dataset']}{row['method']}{row['seed']}"} for row in rows()]
    again = [row | {"role": "rivals"} for row in made]
    typed = [row | {"changes": {"beta.values": [1]}} for row in made]
    assert len(only_board(made + again + typed).contenders) == 3


def test_rows_of_smaller_training_sets_are_not_ranked():
    smaller = [row | {"n": 50, "test_nll": 0.0} for row in rows({"fitc": 0.5})]
    board = only_board(rows() + smaller)
    assert "FITC" not in distinct_labels(board)
    assert any("fewer rows" in note and "FITC" in note for note in board.notes)


def test_methods_that_others_trained_are_rows():
    theirs = [baseline(seed=seed, dataset=name) for seed in range(5) for name in DATA_SETS]
    made = Made(rows(), baselines=theirs)
    (board,) = boards(made, METRICS["nll"])
    assert "ridge (scikit-learn)" in distinct_labels(board)
    scores = scores_of_splits(made)
    ridge = scores[scores["method"] == "ridge"].iloc[0]
    assert (ridge["rmse"], ridge["trained_by"]) == (2.0, "scikit-learn")
    assert ridge["coverage"] == pytest.approx(0.05)


def test_seconds_are_those_of_all_candidates_and_of_the_base():
    made = rows({"elbo": 0.5}, ["pol"], seconds=10.0)
    for row in made:
        row["key"] = f"elbo{row['seed']}"
    for beta in (1.0, 0.1):
        for row in rows({"fixed_log_dlm": 0.3}, ["pol"], seconds=1.0, beta=beta):
            made.append(row | {"base": f"elbo{row['seed']}", "validation_nll": beta})
    board = only_board(made)
    assert dict(zip(distinct_labels(board), board.seconds()[:, 0], strict=True)) == {
        "fixed DLM": 12.0,
        "ELBO": 10.0,
    }


def test_unknown_reference_is_refused_with_a_suggestion():
    with pytest.raises(UserError, match=r"--against elb: .*elbo"):
        only_board(rows(), against="elb")


def test_protocol_that_was_not_run_is_refused():
    with pytest.raises(UserError, match=r"--protocol released: .*paper"):
        only_board(rows(), protocol="released")


def test_metric_that_no_result_has_is_refused():
    with pytest.raises(UserError, match="--metric crps: no result"):
        only_board(rows(), "crps")


def test_single_method_is_no_leaderboard():
    with pytest.raises(UserError, match="two methods"):
        only_board(rows({"elbo": 0.5}))
