"""The default settings are the numbers of docs/SPEC.md, section 6."""

from dlmexp.training.settings import Settings


def test_the_tolerance_of_the_paper_and_no_curve_unless_asked_for():
    settings = Settings(lr=0.1, iterations=5, window=20)
    assert settings.tolerance == 1e-4
    assert settings.evaluate_every is None
