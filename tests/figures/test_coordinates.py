"""A protocol is drawn with its own parameterisation of q."""

from pathlib import Path
from typing import Any

import pytest

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
