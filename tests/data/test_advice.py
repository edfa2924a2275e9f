"""Settings that errors about a table advise, typed into a shell and read by `dlmexp run`."""

import shlex

import pytest

from dlmexp.data.options import setting
from dlmexp.plan.compose import compose
from dlmexp.plan.overrides import spelled_out

NAMES = [
    "age",
    "the age, in years (est.)",
    "it's",
    "null",
    "True",
    "1",
    "1e3",
    "$x",
    "a\\b",
    "end\\",
    "Größe",
    " b",
    "a'\"!",
]


def read(option: str, word: str) -> list[str]:
    (override,) = shlex.split(word)
    return list(getattr(compose(spelled_out([override])).csv, option))


def test_plain_names_need_no_quotes():
    assert setting("drop", "age", "b_2") == "csv.drop=[age,b_2]"
    assert setting("drop", "in years") == "\"csv.drop=['in years']\""


@pytest.mark.parametrize("name", NAMES)
def test_advised_names_are_read_as_they_are(name):
    assert read("drop", setting("drop", name, "other")) == [name, "other"]


@pytest.mark.parametrize("name", ["a (b", "a\\b (c", "it's (c\\"])
def test_free_text_that_hydra_does_not_take_is_read_as_it_is(name):
    assert compose(spelled_out([f"csv.target={name}"])).csv.target == name
