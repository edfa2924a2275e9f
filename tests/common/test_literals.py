"""Settings as a user types them."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st

from dlmexp.common.errors import UserError
from dlmexp.common.literals import csv_setting, dotted_settings, literal, with_results_option


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (0.01, "0.01"),
        (1e-4, "0.0001"),
        (0.1 + 0.2, "0.30000000000000004"),
        ("elbo", "elbo"),
        ("./data", "./data"),
        (Path("a/b"), "a/b"),
        ("null", "'null'"),
        ("NaN", "'NaN'"),
        ("two words", "'two words'"),
        ("1", "'1'"),
        ([0.1, "elbo"], "[0.1,elbo]"),
        (range(3), "[0,1,2]"),
        ({"a": 1, "b": [2]}, "{a:1,b:[2]}"),
        (np.float64(0.5), "0.5"),
        (np.arange(2), "[0,1]"),
        (np.bool_(True), "true"),
    ],
)
def test_literal_is_what_a_user_would_type(value, expected):
    assert literal(value) == expected


def test_value_of_another_type_is_refused():
    with pytest.raises(UserError, match="a setting is a number"):
        literal(object())


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=8),
    lambda values: st.lists(values, max_size=3),
)


@given(VALUES)
def test_hydra_reads_back_the_value_of_a_literal(value):
    override = OverridesParser.create().parse_override(f"name={literal(value)}")
    assert override.value() == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["age"], "csv.drop=[age]"),
        (["age, in years"], "\"csv.drop=['age, in years']\""),
        (["$HOME"], "'csv.drop=['\"'\"'$HOME'\"'\"']'"),
    ],
)
def test_option_of_a_table_is_quoted_for_a_shell(value, expected):
    text = csv_setting("drop", value)
    assert text == expected
    assert shlex.split(text) == [f"csv.drop={literal(value)}"]


def test_nested_settings_have_dotted_names():
    @dataclass
    class Options:
        rows: int = 3

    settings = {"a": {"b": 1, "c": Options()}, "d": [1]}
    assert dict(dotted_settings(settings)) == {"a.b": 1, "a.c.rows": 3, "d": [1]}


@pytest.mark.parametrize(
    ("command", "folder", "expected"),
    [
        ("dlmexp run experiment=bias", Path("./results"), "dlmexp run experiment=bias"),
        ("dlmexp status", "mine", "dlmexp status --results mine"),
        ("dlmexp --plugins own run", "my own", "dlmexp --plugins own run 'results=my own'"),
        ("dlmexp data list", "elsewhere", "dlmexp data list"),
        ("dlmexp", "elsewhere", "dlmexp"),
    ],
)
def test_command_names_a_results_folder_that_is_not_the_default(command, folder, expected):
    assert with_results_option(command, folder) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("dlmexp plot ranks", "dlmexp plot ranks --with results/uci"),
        ("dlmexp run experiment=bias", "dlmexp run experiment=bias"),
    ],
)
def test_command_that_reads_other_folders_names_them(command, expected):
    assert with_results_option(command, "results", ["results/uci"]) == expected
