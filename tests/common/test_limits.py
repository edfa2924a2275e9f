"""Values of settings with limits."""

from dataclasses import dataclass
from typing import Annotated

import pytest

from dlmexp.common.errors import UserError
from dlmexp.common.limits import (
    RESERVED,
    Device,
    Evaluate,
    Filled,
    FolderName,
    Positive,
    Rate,
    Ratio,
    Seed,
    Whole,
    converted,
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Device, "cuda"),
        (Evaluate, "epoch"),
        (Evaluate, "10"),
        (FolderName, "class-log_2.b"),
        (FolderName, "records2"),
        (Positive, 1e300),
        (Rate, 10.0),
        (Ratio, 1.01),
        (Seed, 0),
        (Seed, 2**31 - 1),
        (Whole, 1),
        (Annotated[list[int], Filled], [1]),
    ],
)
def test_value_within_its_limits_is_returned(kind, value):
    assert converted("name", value, kind) == value


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Device, "gpu", "device=gpu: expected auto or cpu or cuda"),
        (Device, "cuda:1", "device=cuda:1: expected auto or cpu or cuda"),
        (Evaluate, "0", "device=0: expected end or epoch or a number of iterations"),
        (Positive, 0.0, "device=0: expected float > 0"),
        (Positive, 1e301, "<= 1e+300"),
        (Rate, 10.5, "<= 10"),
        (Rate, 0.0, "> 0"),
        (Ratio, 1.0, ">= 1.01"),
        (Seed, -1, ">= 0"),
        (Seed, 2**31, "<= 2147483647"),
        (Whole, 0, ">"),
        (Whole, 1.5, "device=1.5: expected int, got float"),
        (Annotated[list[int], Filled], [], "device=[]: expected array of length >= 1"),
    ],
)
def test_value_beyond_its_limits_is_named_with_what_is_valid(kind, value, message):
    with pytest.raises(UserError) as error:
        converted("device", value, kind)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "name", [*RESERVED, "", "-a", ".hidden", "a/b", "a\n", "x" * 101, "ä", "a b"]
)
def test_name_of_an_experiment_is_a_plain_folder_that_is_not_reserved(name):
    with pytest.raises(UserError, match="at most 100 letters"):
        converted("name", name, FolderName)


def test_field_of_a_nested_setting_is_named_with_its_value():
    @dataclass
    class Options:
        rows: int

    @dataclass
    class Dataset:
        options: Options

    with pytest.raises(UserError, match=r"^dataset\.options\.rows=x: expected int, got str$"):
        converted("dataset", {"options": {"rows": "x"}}, Dataset)
