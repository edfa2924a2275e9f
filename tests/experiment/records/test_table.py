"""The tidy table: selection against brute force, settings that never meet, roles apart, models that
stay."""

# A beta may be None; here none is.
# pyright: reportArgumentType=false, reportCallIssue=false

import math

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.common.errors import UserError
from dlmexp.experiment.plan.cell import Setting
from dlmexp.experiment.records.manifests import Manifest, distinct, write_manifest
from dlmexp.experiment.records.packed import arrow_table
from dlmexp.experiment.records.results import ResultsFolder, drop_unselected
from dlmexp.experiment.records.settings import parse_where, select_setting
from dlmexp.experiment.records.store import Store
from dlmexp.experiment.records.table import best_at_each_beta, candidate_cells, rows_for, tidy
from tests.support.cells import ELBO, PLAIN, candidates, fill, scored

BETAS = [50.0, 10.0, 1.0, 0.1]
SCORES = st.one_of(st.sampled_from([0.1, 0.2, 0.3]), st.just(math.inf), st.just("failed"))


def _table(groups, records):
    return tidy(candidate_cells(arrow_table(records), distinct(groups)))


def _scored(cell, score):
    return scored(cell, "failed") if score == "failed" else scored(cell, nll=score)


def _at(*betas, of=PLAIN):
    return [replace(of, beta=beta) for beta in betas]


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.dictionaries(st.tuples(st.integers(0, 2), st.sampled_from(BETAS)), SCORES, min_size=1),
    st.sets(st.sampled_from(BETAS), min_size=1),
)
@example({(0, 10.0): 0.1, (0, 1.0): 0.1}, {10.0, 1.0})  # the larger beta of equals
def test_selection_against_brute_force(scores, betas):
    cells = {
        (seed, beta): replace(PLAIN, seed=seed, beta=beta) for seed in range(3) for beta in BETAS
    }
    groups = [
        candidates("fixed_log_dlm", [cells[seed, beta] for beta in betas]) for seed in range(3)
    ]
    table = _table(groups, [_scored(cells[place], score) for place, score in scores.items()])
    for seed in range(3):
        known = {beta: scores[seed, beta] for beta in betas if (seed, beta) in scores}
        rows = table[table["seed"] == seed]
        assert len(rows) == bool(known)
        finite = [
            (score, -beta) for beta, score in known.items() if score not in ("failed", math.inf)
        ]
        for row in rows.itertuples():
            failed = list(known.values()).count("failed")
            assert (row.candidates, row.missing, row.failed) == (
                len(betas),
                len(betas) - len(known),
                failed,
            )
            assert row.status == ("incomplete" if row.missing else "done" if finite else "failed")
            if row.status != "done":
                assert pd.isna([row.key, row.beta, row.test_nll]).all()
                continue
            value, beta = min(finite)
            assert (row.validation_nll, row.test_nll, row.beta) == (value, value + 0.5, -beta)
            ends = {max(betas): "largest", min(betas): "smallest"} if len(betas) > 1 else {}
            assert row.edge == ends.get(-beta, "")


def test_a_cell_may_belong_to_two_methods_and_two_grids():
    one, grid = replace(ELBO, beta=1.0), _at(4.0, 2.0, of=ELBO)
    records = [
        scored(cell, nll=score) for cell, score in zip([one, *grid], (0.1, 0.3, 0.2), strict=True)
    ]
    records.append(scored(replace(ELBO, beta=5.0), nll=0.0))  # nobody asked for it
    short = Setting("paper", {"beta.values": [4.0, 2.0]})
    groups = [
        candidates("elbo", [one]),
        candidates("beta_elbo", [*grid, one]),
        candidates("beta_elbo", grid, short),
    ]
    table = _table([*groups, *groups], records)
    chosen = {(row.method, row.changes): row.beta for row in table.itertuples()}
    assert chosen == {
        ("elbo", ""): 1.0,
        ("beta_elbo", ""): 1.0,
        ("beta_elbo", "beta.values=[4,2]"): 2.0,
    }
    assert len(table) == 3


@pytest.mark.parametrize(
    ("setting", "selected"),
    [
        (Setting("paper"), {"nll": 10.0, "mse": 1.0}),
        (Setting("released", {}, "nll"), {"nll": 10.0}),
    ],
)
def test_both_selections_are_rows_unless_the_protocol_selects_by_nll(setting, selected):
    """Each reported metric finds its own; a method without NLL is selected by MSE under every
    protocol."""
    nll, mse = _at(10.0, 1.0)
    square = _at(4.0, 2.0, of=replace(ELBO, objective="sq_dlm"))
    records = [scored(nll, nll=0.1, mse=0.9), scored(mse, nll=0.2, mse=0.5)]
    records += [scored(cell, mse=cell.beta) for cell in square]
    groups = [
        candidates("fixed_log_dlm", [nll, mse], setting),
        candidates("joint_sq_dlm", square, setting),
    ]
    table = _table(groups, records)
    by_metric = {(row.method, row.selected_by): row.beta for row in table.itertuples()}
    assert by_metric == {("fixed_log_dlm", name): beta for name, beta in selected.items()} | {
        ("joint_sq_dlm", "mse"): 2.0
    }
    log = table[table["method"] == "fixed_log_dlm"]
    for metric in ("nll", "error", "mre", "crps", "mse"):
        assert rows_for(log, metric)["beta"].tolist() == [selected.get(metric, 10.0)]


def test_without_validation_rows_only_a_single_candidate_is_selected():
    records = [scored(cell) for cell in _at(10.0, 1.0)]
    groups = [candidates("fixed_log_dlm", _at(10.0, 1.0)), candidates("ppgpr", _at(1.0))]
    table = _table(groups, records)
    assert [(row.method, row.status, row.beta) for row in table.itertuples()] == [
        ("ppgpr", "done", 1.0)
    ]


def test_a_failed_record_is_never_selected_even_with_the_lowest_metric():
    worse, best, failed = _at(10.0, 1.0, 0.1)
    records = [scored(worse, nll=0.3), scored(best, nll=0.2)]
    diverged = scored(failed, nll=0.1)
    diverged.status = "failed"  # its validation metric was finite
    table = _table([candidates("fixed_log_dlm", [worse, best, failed])], [*records, diverged])
    assert table[["beta", "failed", "status"]].to_numpy().tolist() == [[1.0, 1, "done"]]


def test_a_single_failed_candidate_is_not_selected():
    (cell,) = _at(1.0)
    table = _table([candidates("ppgpr", [cell])], [scored(cell, "failed")])
    assert table["status"].tolist() == ["failed"]
    assert table[["key", "beta"]].isna().all(axis=None)


def test_roles_are_rows_apart_and_experiments_are_named_together():
    cell = replace(PLAIN, beta=1.0)
    curve = replace(cell, evaluate="10")
    of = {
        "class-log": (cell, "fit"),
        "mine": (cell, "fit"),
        "anatomy-class": (cell, "anatomy"),
        "test": (curve, "curve"),
    }
    groups = [
        candidates("elbo", [each], role=role, experiment=name) for name, (each, role) in of.items()
    ]
    table = _table(groups, [scored(each, nll=0.1) for each in (cell, curve)])
    named = dict(zip(table["role"], table["experiment"], strict=True))
    assert named == {"fit": "class-log, mine", "anatomy": "anatomy-class", "curve": "test"}


def test_initial_values_and_options_are_texts():
    initial = {"noise": 0.5, "lengthscale": "sqrt"}
    cell = replace(ELBO, initial=initial, objective_options={"blocks": 4})
    table = _table([candidates("elbo", [cell])], [scored(cell, nll=0.1)])
    assert table["initial"].tolist() == ["lengthscale=sqrt, noise=0.5"]
    assert table["objective_options"].tolist() == ["blocks=4"]


CHANGES = st.dictionaries(
    st.sampled_from(
        ["training.lr", "M", "kernel", "beta.values", "training.by_method.fitc.initial.noise"]
    ),
    st.one_of(
        st.floats(1e-6, 1e6),
        st.integers(1, 99),
        st.sampled_from(["rbf", None, True, [1.0, 0.5], []]),
    ),
    max_size=3,
)


@pytest.mark.slow
@settings(max_examples=25)
@given(CHANGES, CHANGES, st.sampled_from(["paper", "released"]), st.sampled_from(["paper", "mine"]))
def test_two_settings_never_share_a_row(first, second, protocol, other):
    """Runs in one folder that differ in any value, over the same cells or not: each row is of one
    of them."""
    both = [Setting(protocol, first), Setting(other, second)]
    number = len({(each.protocol, each.text) for each in both})
    cells = _at(10.0, 1.0)
    groups = [candidates("fixed_log_dlm", cells, each) for each in both]
    table = _table(groups, [scored(cell, nll=cell.beta) for cell in cells])
    assert len(table) == len(table.drop_duplicates(["protocol", "changes"])) == number
    rows, others = select_setting(table, protocol, {}, {each.text: each.changes for each in both})
    assert (len(rows), [count for _, count in others]) == (1, [1] * (number - 1))


SETTINGS = [
    Setting("paper"),
    Setting("paper", {"training.lr": 0.01}),
    Setting("paper", {"training.lr": 0.01, "M": 5}),
    Setting("released"),
]
CHANGES_BY_TEXT = {setting.text: setting.changes for setting in SETTINGS}


def _several():
    """The paper's own values, two changes of it, and another protocol, over different seeds."""
    cells = [replace(PLAIN, seed=seed, lr=0.01 if seed in (1, 2) else 0.1) for seed in range(4)]
    groups = [
        candidates("fixed_log_dlm", [cell], each)
        for cell, each in zip(cells, SETTINGS, strict=True)
    ]
    return _table(groups, [scored(cell, nll=0.1) for cell in cells])


@pytest.mark.parametrize(
    ("protocol", "where", "seed"),
    [
        ("paper", [], 0), ("released", [], 3), ("paper", ["training.lr=0.01"], 1), ("paper", ["lr=1e-2"], 1),
        ("paper", ["training.binary.lr=0.01", "M=5"], 2), ("paper", ["lr=0.1"], 0), ("released", ["lr=0.1"], 3),
    ],
)  # fmt: skip
def test_the_protocols_own_values_unless_others_are_asked_for(protocol, where, seed):
    table = _several()
    rows, others = select_setting(
        table, protocol, parse_where(where, table, CHANGES_BY_TEXT), CHANGES_BY_TEXT
    )
    assert rows["seed"].tolist() == [seed]
    assert len(others) == 3
    for options, _ in others:  # what to type leads there
        words = options.split()
        pairs = list(zip(words[::2], words[1::2], strict=True))
        terms, name = (
            [word for flag, word in pairs if flag == "--where"],
            dict(pairs).get("--protocol", "paper"),
        )
        assert select_setting(
            table, name, parse_where(terms, table, CHANGES_BY_TEXT), CHANGES_BY_TEXT
        )[0]["seed"].tolist() != [seed]


@pytest.mark.parametrize("term", ["lr", "learning=3", "lr=7", "seed=", "dataset=banana"])
def test_a_filter_that_no_setting_has_is_refused(term):
    with pytest.raises(UserError, match=term.partition("=")[0]):
        parse_where([term], _several(), CHANGES_BY_TEXT)


def test_the_time_to_predict_is_joined_by_dataset_and_m(tmp_path):
    fill(tmp_path, candidates("fixed_log_dlm", [PLAIN]))
    M = ResultsFolder(tmp_path).table["M"].iloc[0]
    (tmp_path / "predict_seconds.csv").write_text(
        f"dataset,M,predict_seconds\nbanana,{M},0.5\npol,{M},2.0\n"
    )
    assert set(ResultsFolder(tmp_path).table["predict_seconds"]) == {0.5}
    (tmp_path / "predict_seconds.csv").write_text("M\n5\n")
    with pytest.raises(UserError, match=r"predict_seconds\.csv"):
        _ = ResultsFolder(tmp_path).table


GRID = _at(10.0, 1.0, 0.1)
SCORES = tuple({"nll": nll} for nll in (0.3, 0.1, 0.2))  # beta = 1 is selected
MSE = ({"nll": 1, "mse": 3}, {"nll": 2, "mse": 2}, {"nll": 3, "mse": 1})


@pytest.mark.parametrize(
    ("runs", "scores", "left"),
    [
        ({"selected": GRID}, SCORES, {1.0}),
        ({"selected": GRID}, SCORES[:2], {10.0, 1.0}),  # undecided before all have a record
        ({"selected": GRID}, (*SCORES[:2], {"status": "failed"}), {1.0}),
        ({"selected": GRID}, MSE, {10.0, 0.1}),
        ({"selected": GRID}, ({}, {}, {}), {10.0, 1.0, 0.1}),  # no validation rows
        (
            {"selected": GRID, "selected too": [GRID[0], GRID[2]]},
            SCORES,
            {1.0, 0.1},
        ),  # what any run selects
        ({"selected": GRID, "all": GRID}, SCORES, {10.0, 1.0, 0.1}),
        ({"selected": GRID, "none": GRID}, SCORES, {1.0}),
        ({"none": GRID}, SCORES, {10.0, 1.0, 0.1}),  # of an earlier run
        ({}, SCORES, {10.0, 1.0, 0.1}),  # nobody asked for them
    ],
)
def test_which_models_stay(tmp_path, runs, scores, left):
    """What any run of the folder keeps, and what is still undecided."""
    store = Store(tmp_path)
    for name, cells in runs.items():
        write_manifest(
            tmp_path, Manifest(name, [candidates("fixed_log_dlm", cells)], name.split()[0])
        )
    for cell, score in zip(GRID, scores, strict=False):
        store.write(scored(cell, **score), model=None if "status" in score else b"a model")
    before = len(store.model_files())
    assert drop_unselected(store) == before - len(left)
    assert store.model_files().keys() == {cell.key for cell in GRID if cell.beta in left}
    assert drop_unselected(store) == 0


def _of_components(beta, *components):
    return [replace(PLAIN, beta=beta, components=K, variant="joint") for K in components]


def test_components_are_selected_with_beta_and_are_a_column():
    cells = [*_of_components(10.0, 1, 4), *_of_components(1.0, 1, 4)]
    records = [scored(cell, nll=nll) for cell, nll in zip(cells, (0.4, 0.1, 0.3, 0.2), strict=True)]
    (row,) = _table([candidates("mixture_log_dlm", cells)], records).itertuples()
    assert (row.beta, row.components, row.candidates, row.edge) == (10.0, 4, 4, "largest")


def test_candidates_with_one_beta_have_no_edge():
    cells = _of_components(1.0, 1, 4)
    records = [scored(cell, nll=float(cell.components)) for cell in cells]
    (row,) = _table([candidates("mixture_log_dlm", cells)], records).itertuples()
    assert (row.components, row.edge) == (1, "")


def test_of_equals_fewer_components_are_taken():
    cells = _of_components(1.0, 1, 2, 4)
    records = [scored(cell, nll=0.5) for cell in reversed(cells)]
    (row,) = _table([candidates("mixture_log_dlm", cells)], records).itertuples()
    assert row.components == 1


def test_an_undecided_mixture_has_no_components():
    cells = _of_components(1.0, 1, 2)
    (row,) = _table(
        [candidates("mixture_log_dlm", cells)], [scored(cells[1], nll=0.5)]
    ).itertuples()
    assert row.status == "incomplete"
    assert pd.isna(row.components)


def test_the_best_components_of_each_beta_by_validation():
    cells = [*_of_components(10.0, 1, 4), *_of_components(1.0, 1, 4)]
    scores = (0.4, 0.1, 0.2, 0.3)
    records = [scored(cell, nll=nll) for cell, nll in zip(cells, scores, strict=True)]
    groups = [candidates("mixture_log_dlm", cells)]
    rows = candidate_cells(arrow_table(records), groups)
    best = best_at_each_beta(rows, "nll")
    assert dict(zip(best["beta"], best["components"], strict=True)) == {10.0: 4, 1.0: 1}
