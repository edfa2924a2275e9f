"""The declared columns of the tidy table: complete, typed as records are, and documented."""

import re
import typing
from types import UnionType

import msgspec
import pandas as pd
import pytest

from dlmexp.common.provenance import Provenance
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.records.columns import (
    COLUMNS,
    IDENTITY,
    INTERNAL,
    METRICS,
    PARTS,
    SELECTION,
    SHOWN_TEST_METRICS,
    USER_TABLE_METRICS,
    chosen_names,
    column_named,
    columns_with,
    every_column,
    names_with_role,
)
from dlmexp.experiment.records.packed import arrow_table
from dlmexp.experiment.records.record import NON_COLUMN_FIELDS, Result
from dlmexp.experiment.records.table import tidy
from tests.conftest import REPOSITORY
from tests.support.cells import PLAIN, scored
from tests.support.tidy import Made, sweep

FIELDS = [field for kind in (Cell, Result, Provenance) for field in msgspec.structs.fields(kind)]
KINDS = {str: "OSU", int: "iuf", float: "f", bool: "bO"}


def _value_type(kind: typing.Any) -> type:
    """Return the plain type of a field, without None and limits."""
    if typing.get_origin(kind) in (typing.Union, UnionType):
        kind = next(member for member in typing.get_args(kind) if member is not type(None))
    if typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    return str if typing.get_origin(kind) is dict else kind  # dictionaries are JSON


def test_names_are_unique():
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_of_a_record_is_a_column_of_its_type(field):
    if field.name not in NON_COLUMN_FIELDS:
        assert column_named(field.name).type is _value_type(field.type)
        assert field.name in [column.name for column in COLUMNS]


def test_a_table_has_declared_columns_alone_and_values_of_their_types():
    table = tidy(Made(sweep()).candidates)
    undeclared = set(table) - {column.name for column in COLUMNS}
    assert undeclared == set()
    for name, values in table.items():
        if values.notna().all():
            kind = values.dtype.kind if isinstance(values.dtype.kind, str) else "O"
            assert kind in KINDS[column_named(str(name)).type], name


def test_arrow_columns_of_records_have_the_declared_types():
    table = arrow_table([scored(PLAIN, nll=1.0)]).to_pandas()
    for name in ("M", "n", "seed", "minibatch"):
        assert pd.api.types.is_numeric_dtype(table[name])
    assert table["validation_nll"].dtype == float
    assert table["hyper_noise"].tolist() == [0.1]
    assert table["ard"].dtype == bool


@pytest.mark.parametrize(
    ("name", "kind", "role"),
    [
        ("test_pinball", float, "test"),
        ("validation_pinball", float, "validation"),
        ("trivial_test_pinball", float, "trivial"),
        ("trivial_validation_pinball", float, "trivial"),
        ("hyper_df", float, "hyperparameter"),
        ("temperature", str, "option"),
    ],
)
def test_a_column_of_a_plugin_has_the_role_that_its_name_says(name, kind, role):
    column = column_named(name)
    assert (column.name, column.type, column.role) == (name, kind, role)


def test_columns_are_chosen_by_exact_names_and_roles():
    names = ["n", "nu", "note", "data", "dataset", "test_nll", "validation_nll", "test_pinball"]
    assert chosen_names(names, columns_with(["n", "data"])) == ["n", "data"]
    assert chosen_names(names, columns_with(["n"], ["test"])) == ["n", "test_nll", "test_pinball"]
    assert chosen_names(names, every_column) == names
    assert names_with_role(names, "validation") == ["validation_nll"]


def test_the_leading_columns_of_tables():
    assert IDENTITY == [
        "dataset", "stands_for", "task", "n", "size", "seed", "method", "estimator", "samples",
        "parameterisation", "role", "protocol", "changes",
    ]  # fmt: skip
    assert SELECTION == [
        "selected_by", "beta", "candidates", "missing", "failed", "edge", "status", "key",
    ]  # fmt: skip
    metrics = [*SHOWN_TEST_METRICS, *USER_TABLE_METRICS]
    assert {column_named(name).role for name in metrics} == {"test"}
    assert set(metrics) <= {column.name for column in COLUMNS}
    folds = ["fold", "largest_beta", "smallest_beta"]
    assert sorted(INTERNAL) == sorted(["arrays", "group", "model", "options", *folds])


def _documented() -> list[tuple[str, ...]]:
    """Return the rows of the tables of columns in docs/api.md."""
    page = (REPOSITORY / "docs" / "api.md").read_text(encoding="utf-8")
    section = page.partition("## Columns of tables")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.*) \|$", section, re.MULTILINE)
    return [tuple(f"`{row}".split(" | ")) for row in rows]


def test_the_documentation_lists_every_column_with_type_unit_and_meaning():
    of_parts = set(PARTS.values())
    expected = []
    for column in COLUMNS:
        if column.role not in of_parts and column.role != "internal":
            row = (f"`{column.name}`", column.type.__name__, column.unit, column.meaning)
            expected.append(row)
    for metric in METRICS:
        parts = ", ".join(f"`{part}_`" for part in metric.parts)
        expected.append((f"`{metric.name}`", parts, metric.unit, metric.meaning))
    assert _documented() == expected, "\n".join(f"| {' | '.join(row)} |" for row in expected)
