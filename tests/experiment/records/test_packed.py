"""Packed records: a folder with them reads like one with the same records as JSON; what is damaged
is refused."""

# A beta may be None; here none is.
# pyright: reportArgumentType=false, reportCallIssue=false

import logging
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.experiment.plan.cell import Setting
from dlmexp.experiment.records.manifests import Manifest, write_manifest
from dlmexp.experiment.records.packed import arrow_table, concatenated
from dlmexp.experiment.records.record import FORMAT
from dlmexp.experiment.records.results import ResultsFolder, collect_packed, collect_table
from dlmexp.experiment.records.store import Store
from tests.support.cells import PLAIN, candidates, scored

CURVE = {
    "evaluated_at": np.arange(10, 40, 10),
    "test_nll": np.array([3.0, np.nan, 1.0]),
    "objective": np.ones(9),
}
BETAS = (10.0, 1.0, 0.1)


def _fill(folder, seeds=(0, 1), lacking=(), setting=Setting("paper"), **changes):  # noqa: B008
    """A sweep of learning curves and one of fits; `lacking` betas have no record yet, the smallest
    failed."""
    store = Store(folder)
    fits = [[replace(PLAIN, seed=seed, beta=beta, **changes) for beta in BETAS] for seed in seeds]
    curves = [replace(cells[0], evaluate="10") for cells in fits]
    groups = [candidates("fixed_log_dlm", cells, setting) for cells in fits]
    groups += [candidates("fixed_log_dlm", [cell], setting, "curve") for cell in curves]
    write_manifest(store.root, Manifest("mine", groups))
    for cell in (cell for cells in fits for cell in cells if cell.beta not in lacking):
        nll = cell.seed + abs(np.log(cell.beta))
        store.write(scored(cell, "failed" if cell.beta == 0.1 else "done", nll=nll, error=0.1))
    for cell in curves:
        store.write(scored(cell, nll=1.0), CURVE)
    return store


def _pack(source, target):
    target.mkdir(exist_ok=True)
    collect_packed(str(source), str(target / "records.parquet"))
    return target


def _comparable(results):
    frames = []
    for frame in (results.table, results.candidates):
        frame = frame.drop(columns=["model", "arrays", "group"], errors="ignore")
        frames.append(frame[sorted(frame.columns)])
    return frames


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(
    st.sets(st.integers(0, 3), min_size=1, max_size=3),
    st.sampled_from([(), (10.0,), (1.0, 10.0)]),
    st.sampled_from(
        [{}, {"options": {"samples": 3, "nu": 0.5}}, {"initial": {"noise": 1.0}}, {"minibatch": 10}]
    ),
)
def test_packed_and_not_a_folder_reads_the_same(tmp_path_factory, seeds, lacking, changes):
    folder = tmp_path_factory.mktemp("packed")
    _fill(folder / "json", sorted(seeds), lacking, **changes)
    packed = ResultsFolder(_pack(folder / "json", folder / "parquet"))
    for ours, theirs in zip(
        _comparable(ResultsFolder(folder / "json")), _comparable(packed), strict=True
    ):
        pd.testing.assert_frame_equal(ours, theirs, check_dtype=False)
    again = ResultsFolder(_pack(folder / "parquet", folder / "again"))
    for ours, theirs in zip(_comparable(packed), _comparable(again), strict=True):
        pd.testing.assert_frame_equal(ours, theirs)
    assert Store(folder / "parquet").keys() == Store(folder / "json").keys()


def test_only_what_is_of_one_protocol(tmp_path):
    _fill(tmp_path / "a")
    _fill(tmp_path / "a", seeds=(7,), setting=Setting("released"))
    _fill(tmp_path / "a", seeds=(8,), setting=Setting("released", {"training.lr": 1.0}))
    assert (
        collect_packed(str(tmp_path / "a"), str(tmp_path / "b.parquet"), protocol="released") == 4
    )
    with pytest.raises(UserError, match="annealed"):
        collect_packed(str(tmp_path / "a"), str(tmp_path / "d.parquet"), protocol="annealed")


def _in_other_groups(table):
    return table.set_column(
        table.column_names.index("asked"), "asked", pa.array([[99]] * len(table))
    )


OTHER_TABLES = {
    "another table": lambda table: pa.table({"a": [1]}),
    "newer": lambda table: table.replace_schema_metadata(
        {**table.schema.metadata, b"dlmexp": str(FORMAT + 1)}
    ),
    "no metadata": lambda table: table.replace_schema_metadata({b"dlmexp": str(FORMAT)}),
    "other groups": _in_other_groups,
}


@pytest.mark.parametrize("how", [*OTHER_TABLES, "flipped"])
def test_what_is_no_sound_pack_is_a_sentence_and_stays(tmp_path, capsys, how):
    path = _pack(_fill(tmp_path / "json").root, tmp_path / "parquet") / "records.parquet"
    if how in OTHER_TABLES:
        pq.write_table(OTHER_TABLES[how](pq.read_table(path)), path)
    else:
        content = path.read_bytes()
        path.write_bytes(content[:200] + bytes([content[200] ^ 0xFF]) + content[201:])
    before = path.read_bytes()
    for command, codes in (("collect", [2]), ("status", [0, 2])):
        code = main([command, "--results", str(tmp_path / "parquet")])
        said = capsys.readouterr().err
        assert code in codes
        assert ("records.parquet" in said, said.count("\n")) == (True, 1) or code == 0
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_cell_in_json_and_packed_the_folders_own_is_taken(tmp_path, caplog):
    source = _fill(tmp_path / "json")
    _pack(source.root, source.root)
    with caplog.at_level(logging.WARNING):
        assert len(ResultsFolder(source.root).table) == 4
    assert not caplog.messages, "they are the same"
    cell = replace(PLAIN, seed=0, beta=1.0)
    source.write(scored(cell, nll=-1.0))
    results = ResultsFolder(source.root)
    with caplog.at_level(logging.WARNING):
        chosen = results.table
    assert chosen.loc[
        (chosen["seed"] == 0) & (chosen["role"] == "fit"), "validation_nll"
    ].tolist() == [-1.0]
    assert [message for message in caplog.messages if "1 cells" in message]
    _pack(source.root, tmp_path / "both")
    shutil.copy(source.root / "records.parquet", tmp_path / "both" / "second.parquet")
    assert len(ResultsFolder(tmp_path / "both").candidates) == 8, "each cell once, of two packs too"


def test_a_table_beside_packs_is_no_pack(tmp_path):
    source = _fill(tmp_path / "json").root
    path, rows = collect_table(str(source))
    assert (path.name, rows) == ("table.parquet", 4)
    assert len(pd.read_parquet(path)) == 4
    assert len(pd.read_csv(collect_table(str(source), csv=True)[0])) == 4
    assert len(ResultsFolder(source).table) == 4
    with pytest.raises(UserError, match=r"table\.parquet"):
        collect_packed(str(source), str(source / "table.parquet"))


def test_a_later_field_is_a_column_where_a_record_has_it_with_its_default_in_the_others():
    of_new = arrow_table([scored(replace(PLAIN, components=2))])
    without_field = arrow_table([scored(PLAIN)]).drop_columns(["components", "base"])
    cells = concatenated([of_new, without_field])
    assert cells["components"].to_pylist() == [2, 1]
    assert cells["base"].to_pylist() == [PLAIN.base, None]


def test_a_later_field_that_no_record_has_is_no_column():
    without_rows = arrow_table([])
    without_field = arrow_table([scored(PLAIN)]).drop_columns(["components"])
    assert "components" in without_rows.column_names
    assert "components" not in concatenated([without_rows, without_field]).column_names
    assert concatenated([without_rows]).column_names == without_rows.column_names


def test_candidates_of_a_mixture_keep_their_order_in_a_pack(tmp_path):
    cells = [
        replace(PLAIN, beta=beta, components=K, variant="joint")
        for beta in (10.0, 1.0)
        for K in (1, 2, 8)
    ]
    group = candidates("mixture_log_dlm", cells)
    write_manifest(tmp_path / "json", Manifest("mine", [group]))
    for cell in cells:
        Store(tmp_path / "json").write(scored(cell, nll=1.0))
    (packed,) = ResultsFolder(_pack(tmp_path / "json", tmp_path / "parquet")).groups
    assert packed == group
