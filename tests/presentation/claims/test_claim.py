"""How a claim is registered, and what it names."""

import pytest

from dlmexp.common.catalogue import entries
from dlmexp.common.errors import UserError
from dlmexp.presentation.claims.claim import CLAIMS, claim, claims
from dlmexp.presentation.figures.panels import FIGURES


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
    assert [claim.number for claim in claims()] == list(range(1, 34))


@pytest.mark.parametrize(
    ("number", "section"), [("1", "section 6.2"), ("16", "supplement B"), ("23", "section 6.1")]
)
def test_a_claim_belongs_to_its_first_section(number, section):
    assert CLAIMS[number].section == section


@pytest.mark.parametrize("number", CLAIMS.names())
def test_experiments_and_figures_of_claims_are_there(number):
    assert set(CLAIMS[number].experiments) <= set(entries("experiment"))
    assert set(CLAIMS[number].figures) <= set(FIGURES.names())
