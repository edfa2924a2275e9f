"""A protocol is drawn with its own parameterisation of q."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlmexp.figures.notes import notes_below
from dlmexp.figures.plot import Request, measured
from dlmexp.records.results import load
from dlmexp.records.wanted import Wanted
from tests.support.made_up import made

THREE = ("paper", "released", "converged")


@pytest.mark.slow
def test_the_other_q_makes_no_second_figure_of_a_protocol_that_has_one(tmp_path: Path) -> None:
    """`anatomy` trains both, whatever the protocol says."""
    for lr, protocol in enumerate(THREE, 1):
        for q in ("whitened", "unwhitened"):
            made(tmp_path, protocol, [500], lr, q=q)
    results = load(tmp_path)

    def shown(**how: Any) -> dict[str, set[str]]:
        found = [one.drawing for one in measured([results], ["class-log"], Request(**how))]
        return {drawing.name: set(drawing.protocols) for drawing in found}

    assert shown().keys() == {"class-log", "class-log-unwhitened"}
    for protocol in ("released", "converged"):
        assert shown(wanted=Wanted(protocol)).keys() == {f"class-log-{protocol}"}
    together = {"class-log-protocols": set(THREE), "class-log-unwhitened-protocols": {"paper", "released"}}
    assert shown(compare_protocols=True) == together
    asked = shown(compare_protocols=True, parameterisation="unwhitened")
    assert asked == {"class-log-unwhitened-protocols": set(THREE)}, "all, where it is asked for"


@pytest.mark.slow
def test_what_panels_have_in_common_is_said_once(tmp_path: Path) -> None:
    for protocol, q in (("paper", "whitened"), ("released", "unwhitened")):
        for dataset in ("banana", "ringnorm"):
            made(tmp_path, protocol, [500], 0.1 if q == "whitened" else 0.01, dataset, q)
    results = load(tmp_path)
    (drawn,) = measured([results], ["class-log"], Request(wanted=Wanted("released")))
    assert drawn.settings.keys() == {"banana", "ringnorm"}
    drawn.settings = {"banana": "released, M=9", "thyroid": "released", "ringnorm": "released, M=9"}
    assert "Protocol: banana, ringnorm: released, M=9; thyroid: released." in notes_below(drawn)
    (drawn,) = measured([results], ["class-log"], Request(compare_protocols=True))
    drawn.settings = {f"{dataset} [released]": "released, M=9" for dataset in ("banana", "ringnorm")}
    twice = replace(drawn.drawing, panels=drawn.drawing.panels * 2, protocols=drawn.drawing.protocols * 2)
    two_panels_each = replace(drawn, drawing=twice, series=drawn.series * 2)
    for one in (drawn, two_panels_each):
        assert "Protocols side by side: paper; released with M=9." in notes_below(one)


def test_a_protocol_has_a_column_where_something_was_run(tmp_path: Path) -> None:
    """What is not run is named below: with its protocol where others have it."""
    for protocol, datasets in (
        ("paper", ("banana", "ringnorm")),
        ("released", ("banana",)),
        ("converged", ("thyroid",)),
    ):
        for dataset in datasets:
            made(tmp_path, protocol, [500], 0.1, dataset, "unwhitened" if protocol == "released" else "whitened")
    both = Request(by={"dataset": ["banana", "ringnorm"]}, compare_protocols=True)
    (drawn,) = measured([load(tmp_path)], ["class-log"], both)
    assert drawn.drawing.protocols == ("paper", "released") * 2
    assert len(drawn.series) == len(drawn.commands) == len(drawn.drawing.panels) == 4
    assert "Not run: ringnorm under released, protocol converged." in notes_below(drawn)
    assert {gap.dataset for gap in drawn.gaps if gap.what == "nothing run"} == {
        "ringnorm [released]", "banana [converged]", "ringnorm [converged]"
    }  # fmt: skip
    (drawn,) = measured([load(tmp_path)], ["class-log"], replace(both, by={"dataset": ["ringnorm"]}))
    assert drawn.drawing.protocols == ("paper", "released", "converged"), "one column alone would stand beside nothing"
