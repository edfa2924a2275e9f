"""How lines look: alike wherever they appear, and like no other line."""

import pytest

from dlmexp.presentation.figures.looks import (
    ESTIMATOR_STYLES,
    METHOD_LOOKS,
    estimator_look,
    method_look,
    paper_style,
)


def test_no_two_methods_share_colour_and_marker():
    looks = [(look.colour, look.marker) for look in METHOD_LOOKS.values()]
    assert len(set(looks)) == len(looks)


def test_markers_tell_all_methods_apart_in_grey():
    assert len({look.marker for look in METHOD_LOOKS.values()}) == len(METHOD_LOOKS)


def test_an_unknown_method_is_labelled_with_its_name():
    assert method_look("my_method").label == "my method"


@pytest.mark.parametrize(
    ("samples", "shade"), [(1, 0), (9, 0), (10, 1), (99, 1), (100, 2), (1000, 2), (None, 1)]
)
def test_more_samples_have_a_darker_shade(samples, shade):
    assert estimator_look("bmc", samples).colour == ESTIMATOR_STYLES["bmc"].shades[shade]


def test_an_unknown_estimator_has_a_look():
    assert estimator_look("mine", 5).label == "mine-5"


def test_the_style_of_the_project_ends_with_its_context():
    import matplotlib as mpl

    before = mpl.rcParams["font.size"]
    with paper_style():
        assert mpl.rcParams["font.size"] == 7
    assert mpl.rcParams["font.size"] == before
