"""Which records are taken where there are several settings, and what is said of values that are not there."""

import pytest
from msgspec.structs import replace

from dlmexp.errors import UserError
from dlmexp.plan.cell import Candidates, Cell
from dlmexp.records.manifest import manifest
from dlmexp.records.results import Results
from dlmexp.records.settings import PLAIN, Setting, options
from dlmexp.records.store import Store
from dlmexp.records.wanted import Wanted, check_at_hand, parse_where, same, settle, usual_protocol
from tests.support.made_up import cell, fit, method_cell

SLOW = {"lr": 0.01, "max_iterations": 200}


def folder(*cells: Cell, protocol: str = "paper", method: str = "elbo") -> Results:
    several = [Candidates(method, "1", (one,), protocol) for one in cells]
    return Results(Store("nowhere"), [fit(one, nll=0.1) for one in cells], manifest("mine", several).candidates)


def test_the_protocol_as_it_stands_is_taken_however_few_its_records_are() -> None:
    found = folder(cell(), *(cell(seed=seed, **SLOW) for seed in range(5)))
    taken = settle(found.settings, found.choices, PLAIN)
    assert taken.setting == PLAIN
    assert [one.cell.lr for one in taken.kept] == [0.1]
    slow = PLAIN.changed({"training.lr": 0.01, "training.max_iterations": 200})
    assert {setting: len(keys) for setting, keys in taken.left_out.items()} == {slow: 5}
    assert slow.label == "paper, lr=0.01, max_iterations=200"


def test_without_it_the_nearest_setting_is_taken() -> None:
    found = folder(*(cell(seed=seed, **SLOW) for seed in range(5)), cell(lr=0.01))
    assert settle(found.settings, found.choices, PLAIN).setting == PLAIN.changed({"training.lr": 0.01})
    slow = PLAIN.changed({"training.max_iterations": 200})
    assert settle(found.settings, found.choices, slow).setting == slow.changed({"training.lr": 0.01})


@pytest.mark.parametrize(
    ("where", "rate", "limit"),
    [
        (["training.lr=0.01"], 0.01, 3000),
        (["training.max_iterations=200"], 0.01, 200),
        (["training.lr=0.01", "training.max_iterations=200"], 0.01, 200),
        (["training.lr=0.1"], 0.1, 3000),
        (["training.binary.lr=0.01"], 0.01, 3000),
        (["M=20"], 0.1, 3000),
        (["dataset.banana.M=20"], 0.1, 3000),
    ],
)
def test_where(where: list[str], rate: float, limit: int) -> None:
    found = folder(cell(), cell(lr=0.01), *(cell(seed=seed, **SLOW) for seed in range(5)), cell(M=20))
    taken = settle(found.settings, found.choices, PLAIN, Wanted(where=parse_where(where)))
    assert {(one.cell.lr, one.cell.max_iterations) for one in taken.kept} == {(rate, limit)}
    if "M=20" in where[0]:
        assert {one.cell.M for one in taken.kept} == {20}


def test_an_option_of_an_estimator() -> None:
    cells = [method_cell("joint_log_dlm", "abalone", estimator="ups", samples=10, seed=seed) for seed in range(2)]
    other = [replace(one, options={"samples": 10, "sampler": "rejection"}) for one in cells]
    found = folder(*cells, *other, method="joint_log_dlm")
    for words in ("sampler=rejection", "estimator.ups.sampler=rejection"):
        taken = settle(found.settings, found.choices, PLAIN, Wanted(where=parse_where([words])))
        assert {one.cell.options.get("sampler") for one in taken.kept} == {"rejection"}


def test_a_kind_of_data_that_is_not_meant_has_no_such_value() -> None:
    found = folder(cell(), cell(lr=0.01))
    with pytest.raises(UserError, match="no record has this value; there are none at all"):
        check_at_hand(found.settings, found.choices, Wanted(where=parse_where(["training.count.lr=0.01"])))


def test_the_only_protocol_at_hand_is_taken_unless_another_is_asked_for() -> None:
    found = folder(cell(), cell(seed=1), protocol="mine")
    assert usual_protocol(found.choices) == "mine"
    assert usual_protocol(found.choices, Wanted("paper")) == "paper"
    assert usual_protocol([]) == "paper"
    assert settle(found.settings, found.choices, PLAIN, Wanted("paper")).kept == []
    with pytest.raises(UserError, match="no record was made under protocol 'paper': there are mine"):
        check_at_hand(found.settings, found.choices, Wanted("paper"))


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [(0.01, "1e-2", True), (0.01, "0.1", False), (None, "null", True), (None, "0", False), (True, "true", True),
     (200, "200", True), (200, "many", False), ("rbf", "RBF", True),
     ("1, 0.01", "[1,0.01]", True), ("1, 0.01", "1,0.01", True), ("1, 0.01", "0.01", False)],
)  # fmt: skip
def test_what_was_typed_is_compared_as_a_value(value: object, text: str, expected: bool) -> None:
    assert same(value, text) is expected


@pytest.mark.parametrize("term", ["training.lrr=1", "betta=1", "samples=10", "training.binary=1", "seed=0"])
def test_a_name_that_is_no_setting_is_refused(term: str) -> None:
    with pytest.raises(UserError, match="there is no setting"):
        parse_where([term])


def test_the_options_that_lead_from_one_setting_to_another() -> None:
    default = Setting("paper").changed({"training.max_iterations": 1000, "beta": "n, n/10, ... >= 0.01"})
    assert options(default, default, "binary", True) == []
    assert options(PLAIN, default, "binary", False) == ["--where", "training.max_iterations=3000"]
    assert options(PLAIN, default, "binary", True)[-1] == "beta=n, n/2, ... >= 0.01"
    assert options(Setting("released"), Setting("released"), "binary", True) == ["--protocol", "released"]
