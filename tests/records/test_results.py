"""Loading results, and picking from them."""

import pandas as pd
import pytest
from msgspec.structs import replace

from dlmexp.catalogue import beta_rule
from dlmexp.errors import UserError
from dlmexp.records.manifest import manifest, write_manifest
from dlmexp.records.results import Results, load, load_several, read_results, records_of
from dlmexp.records.store import Store
from dlmexp.records.table import selected_table
from tests.support.cells import PLAIN, asked, candidates, scored
from tests.support.made_up import cell, curves, fit, method_cell, sweep


def test_selection_is_that_of_the_table(results) -> None:
    """Figures and claims go line by line, the table takes all at once: both select the same."""
    found = results(
        *sweep("cadata", ("elbo", "beta_elbo", "fitc", "joint_log_dlm", "joint_sq_dlm"), [100, 200], range(3), 5),
        *sweep("abalone", ("beta_elbo", "joint_log_dlm"), [100], range(3), 5, estimator="bmc", samples=10),
        *sweep("abalone", ("beta_elbo", "fixed_log_dlm"), [100], range(2), 5, parameterisation="unwhitened"),
    )
    chosen = selected_table(found.choices, found.frame)
    expected = set(zip(chosen["method"], chosen["key"], strict=True))
    by_line = set()
    for dataset in ("cadata", "abalone"):
        for method in set(chosen["method"]):
            for estimator, samples in (("exact", None), ("bmc", 10)):
                for one in found.line("fits", dataset, method, estimator, samples):
                    record = one.selected("nll")
                    assert record is not None
                    by_line.add((one.method, record.key))
    assert by_line == expected
    assert len(expected) > 10


def test_error_and_mre_are_selected_by_nll(results) -> None:
    low = fit(method_cell("joint_log_dlm", "banana", beta=2.0), nll=0.1, error=0.5)
    high = fit(method_cell("joint_log_dlm", "banana", beta=1.0), nll=0.2, error=0.1)
    (one,) = results(low, high).line("fits", "banana", "joint_log_dlm")
    for metric in ("nll", "error", "mre"):
        chosen = one.selected(metric)
        assert chosen is not None
        assert chosen.key == low.key


def test_elbo_is_the_fit_at_beta_one(results) -> None:
    found = results(*(cell("banana", beta=beta) for beta in (0.5, 1.0, 2.0)))
    (elbo,) = found.line("fits", "banana", "elbo")
    assert [record.cell.beta for record in elbo.records] == [1.0]
    (beta_elbo,) = found.line("fits", "banana", "beta_elbo")
    assert [record.cell.beta for record in beta_elbo.records] == [2.0, 1.0, 0.5], "as the manifest says"


def test_curves_and_fits_are_kept_apart(results) -> None:
    found = results(
        *curves("abalone", 2000, range(1)),
        method_cell("joint_log_dlm", "abalone", n=2000, beta=0.1, estimator="bmc", samples=10),
    )
    assert len(records_of(found.line("curves", "abalone", "joint_log_dlm", "bmc", 10))) == 1
    assert len(records_of(found.line("fits", "abalone", "joint_log_dlm", "bmc", 10))) == 1


CELLS = [replace(PLAIN, beta=beta) for beta in (10.0, 1.0, 0.1)]
RECORDS = [scored(one, nll=nll) for one, nll in zip(CELLS, (0.3, 0.2, 0.1), strict=True)]


def test_records_that_no_manifest_names_are_counted_and_not_selected_among(tmp_path) -> None:
    for record in RECORDS:
        Store(tmp_path).write(record)
    found = load(tmp_path)
    assert found.unasked == 3
    assert found.choices == []
    write_manifest(tmp_path, manifest("mine", [candidates("fixed_log_dlm", CELLS[:2])]))
    found = load(tmp_path)
    assert found.unasked == 1
    (one,) = found.choices
    assert one.selected() == found.records[CELLS[1].key]


def test_restricted_to_some_betas_the_others_are_not_missing() -> None:
    found = Results(Store("nowhere"), RECORDS, asked(candidates("fixed_log_dlm", CELLS)), "mine")
    kept = found.restricted(RECORDS[:2])
    assert set(kept.records) == {RECORDS[0].key, RECORDS[1].key}
    assert kept.label == "mine"
    (one,) = kept.choices
    assert (one.missing, one.selected()) == (0, RECORDS[1])
    assert found.choices[0].selected() == RECORDS[2], "the results themselves stay as they were"
    assert found.restricted([]).choices == []


def test_restricted_to_other_things_a_grid_that_is_not_complete_stays_so() -> None:
    """`plot --by seed=0` must not make a selection of half a grid."""
    others = [replace(one, seed=0) for one in CELLS]
    records = [*RECORDS[:2], *(scored(one, nll=0.1) for one in others)]
    groups = asked(candidates("fixed_log_dlm", CELLS), candidates("fixed_log_dlm", others))
    found = Results(Store("nowhere"), records, groups)
    (one,) = found.restricted(RECORDS[:2]).choices
    assert (one.missing, one.selected()) == (1, None)


def test_two_grids_in_one_folder_are_two_choices(results, tmp_path) -> None:
    found = results(*RECORDS)
    write_manifest(found.store.root, manifest("other", [candidates("fixed_log_dlm", CELLS[:2], "10, 1")]))
    both = read_results(found.store.root).line("fits", "banana", "fixed_log_dlm", "bmc", 10)
    chosen = {one.betas: record.cell.beta for one in both if (record := one.selected()) is not None}
    assert chosen == {beta_rule("paper"): 0.1, "10, 1": 1.0}


def test_frame_has_a_row_per_record(results) -> None:
    found = results(*sweep("banana", ("elbo",), [100], range(4), 1))
    assert isinstance(found.frame, pd.DataFrame)
    assert len(found.frame) == 4


def test_no_folder_and_no_records_are_said_in_a_sentence(tmp_path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no records"):
        load(tmp_path)


def test_folders_get_the_shortest_labels_that_differ(results, tmp_path) -> None:
    for name in ("a/results", "b/results"):
        (tmp_path / name).mkdir(parents=True)
        results(cell()).store.root.joinpath("records").rename(tmp_path / name / "records")
    several = load_several([str(tmp_path / "a/results"), str(tmp_path / "b/results")])
    assert [one.label for one in several] == ["a/results", "b/results"]
    with pytest.raises(UserError, match="named twice"):
        load_several([str(tmp_path / "a/results"), str(tmp_path / "a/../a/results")])
