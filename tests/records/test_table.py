"""Records as a table, and one row per selection."""

import math

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.records.selection import choices
from dlmexp.records.table import row, selected_table, table
from tests.support.cells import ELBO, PLAIN, asked, candidates, scored

BETAS = [50.0, 10.0, 1.0, 0.1]


def _selected(groups, records):
    return selected_table(choices(asked(*groups), {record.key: record for record in records}), table(records))


def test_one_row_per_selection_with_what_there_was_to_choose_from():
    groups = [candidates("fixed_log_dlm", [replace(PLAIN, seed=s, beta=b) for b in BETAS]) for s in range(3)]
    records = [scored(cell, nll=cell.beta or 0.0) for some in groups[:2] for cell in some.cells]
    records[0] = scored(records[0].cell, "failed")
    records += [scored(cell, nll=0.0) for cell in groups[2].cells[:-1]]
    chosen = _selected(groups, records)
    assert chosen["seed"].tolist() == [0, 1], "the grid of the third repetition is not complete"
    assert chosen["beta"].tolist() == [0.1, 0.1]
    assert chosen["candidates"].tolist() == [4, 4]
    assert chosen["failed"].tolist() == [1, 0]
    assert set(chosen["method"]) == {"fixed_log_dlm"}
    assert set(chosen["selected_by"]) == {"validation_nll"}
    assert "betas" not in chosen.columns


def test_selection_does_not_depend_on_the_order_of_records():
    groups = [candidates("fixed_log_dlm", [replace(PLAIN, seed=s, beta=b) for b in BETAS]) for s in range(3)]
    records = [scored(cell, nll=abs(math.log(cell.beta or 1)) % 1) for some in groups for cell in some.cells]
    forth, back = (
        _selected(g, r).reset_index(drop=True) for g, r in ((groups, records), (groups[::-1], records[::-1]))
    )
    pd.testing.assert_frame_equal(forth, back)
    assert len(forth) == 3


def test_square_loss_is_selected_by_its_only_metric_and_fitc_has_no_beta():
    square = [replace(ELBO, objective="sq_dlm", beta=b) for b in (10.0, 1.0)]
    fitc = replace(ELBO, objective="fitc", beta=None)
    chosen = _selected(
        [candidates("joint_sq_dlm", square), candidates("fitc", [fitc], "")],
        [scored(square[0], mse=0.5), scored(square[1], mse=0.4), scored(fitc, nll=1.0)],
    )
    found = chosen.set_index("method")
    assert found.loc["joint_sq_dlm", "beta"] == 1.0
    assert found["selected_by"].to_dict() == {"joint_sq_dlm": "validation_mse", "fitc": "validation_nll"}


def test_different_estimators_and_sizes_are_selected_apart():
    groups = [
        candidates("fixed_log_dlm", [replace(PLAIN, options={"samples": L}, n=n, beta=b) for b in (1.0, 0.1)])
        for L in (1, 10)
        for n in (100, 200)
    ]
    chosen = _selected(groups, [scored(cell, nll=cell.beta or 0.0) for some in groups for cell in some.cells])
    assert len(chosen) == 4
    assert set(chosen["beta"]) == {0.1}


def test_nothing_to_choose_from():
    assert _selected([candidates("fixed_log_dlm", [PLAIN])], [scored(PLAIN, "failed")]).empty
    assert _selected([], [scored(PLAIN, nll=1.0)]).empty, "nobody knows what it belongs to"


def test_part_of_a_grid_is_nothing_to_choose_from():
    """n, n/2, n/4, ...: the best of those run so far is not the best."""
    cells = [replace(PLAIN, beta=100 / 2**k) for k in range(14)]
    records = [scored(cell, nll=cell.beta or 0.0) for cell in cells]
    groups = [candidates("fixed_log_dlm", cells)]
    assert _selected(groups, records)["beta"].tolist() == [cells[-1].beta]
    assert _selected(groups, records[:-1]).empty
    assert _selected([candidates("fixed_log_dlm", cells[:-1])], records[:-1])["beta"].tolist() == [cells[-2].beta]


def test_the_grid_is_named_where_a_method_was_selected_from_two():
    cells = [replace(PLAIN, beta=beta) for beta in (10.0, 1.0, 0.1)]
    records = [scored(cell, nll=nll) for cell, nll in zip(cells, (0.3, 0.2, 0.1), strict=True)]
    chosen = _selected([candidates("fixed_log_dlm", cells, "A"), candidates("fixed_log_dlm", cells[:2], "B")], records)
    assert dict(zip(chosen["betas"], chosen["beta"], strict=True)) == {"A": 0.1, "B": 1.0}


def test_fits_that_start_elsewhere_are_chosen_among_themselves():
    groups = [
        candidates("fixed_log_dlm", [replace(PLAIN, base=base, beta=beta) for beta in (10.0, 1.0)])
        for base in ("a", "b")
    ]
    fixed = [cell for some in groups for cell in some.cells]
    records = [scored(cell, nll=score) for cell, score in zip(fixed, (0.1, 0.2, 0.4, 0.3), strict=True)]
    chosen = _selected(groups, records)
    assert sorted(zip(chosen["base"], chosen["beta"], chosen["candidates"], strict=True)) == [
        ("a", 10.0, 2),
        ("b", 1.0, 2),
    ]


def test_gradients_are_in_the_table_and_not_selected():
    cell = replace(PLAIN, kind="gradient")
    records = [scored(cell, nll=0.1)]
    assert len(table(records)) == 1
    assert _selected([candidates("fixed_log_dlm", [cell])], records).empty


def test_a_row_has_the_cells_fields_metrics_and_origin():
    found = row(scored(PLAIN, nll=0.25, error=0.1))
    assert found["key"] == PLAIN.key
    assert found["beta"] == PLAIN.beta
    assert found["samples"] == 10
    assert found["nu"] is None
    assert found["validation_nll"] == 0.25
    assert found["test_error"] == pytest.approx(0.6)
    assert found["test_mse"] is None
    assert found["hyper_noise"] == 0.1
    assert found["command"] == "dlmexp run"


def test_a_new_option_and_a_new_metric_get_columns_of_their_own():
    new = scored(replace(PLAIN, options={"samples": 10, "antithetic": True}), nll=0.25, crps=0.5)
    frame = table([scored(PLAIN, nll=0.5), new])
    assert frame["antithetic"].tolist()[1] is True
    assert pd.isna(frame["antithetic"].tolist()[0])
    assert frame["validation_crps"].tolist()[1] == 0.5
