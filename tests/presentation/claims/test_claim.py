"""How a claim is registered, and how its parts are summed up."""

import pytest

from dlmexp.common.errors import UserError
from dlmexp.presentation.claims.claim import CLAIMS, Part, all_parts, claim, claims
from dlmexp.presentation.claims.rules import Verdict


@pytest.fixture
def registered(monkeypatch):
    """A claim of a plugin, with the number 100."""
    monkeypatch.setattr(CLAIMS, "_items", {name: CLAIMS[name] for name in CLAIMS.names()})

    @claim(100, "our note", "waves", text="waves: DLM beats ELBO.")
    def function(evidence):
        """Not the sentence."""
        return []

    return CLAIMS["100"]


def test_the_text_of_a_claim_is_its_argument(registered):
    assert registered.text == "waves: DLM beats ELBO."


def test_figures_are_named_like_the_experiments_unless_others_are_named(registered):
    assert registered.experiments == ("waves",)
    assert registered.figures == ("waves",)
    calibration = CLAIMS["22"]
    assert calibration.experiments == ("reg-log", "class-log", "count-log")
    assert calibration.figures == ("calibration-reg", "calibration-class", "calibration-count")


def test_a_claim_without_text_is_refused_with_what_to_write():
    with pytest.raises(UserError, match=r'claim 100: .*@claim\(100, ..., text="..."\)'):

        @claim(100, "our note", "waves")
        def function(evidence):
            """waves: DLM beats ELBO."""
            return []


def test_claims_are_in_the_order_of_their_numbers():
    assert [claim.number for claim in claims()] == list(range(1, 23))


def test_every_part_counts_and_tolerance_needs_all_of_them():
    holds = Part("", verdict=Verdict.HOLDS, tolerant=True)
    worse = Part("", verdict=Verdict.WORSE_WITHIN, tolerant=True)
    strict = Part("", verdict=Verdict.WORSE_WITHIN)
    assert all_parts([holds, worse]) is Verdict.WORSE_WITHIN
    assert all_parts([holds, strict]) is Verdict.MIXED
