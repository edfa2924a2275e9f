"""Test rows over other rows of a repetition, computed by hand from docs/SPEC.md, section 5."""

import pytest

from dlmexp.presentation.claims.overlap import split_overlap, validation_rows


@pytest.mark.parametrize("dataset", ["pol", "sarcos", "sarcos_test"])
def test_regression_tests_on_a_quarter_of_the_rows(dataset):
    assert split_overlap(dataset, "regression", 3000) == 1 / 3


@pytest.mark.parametrize(
    ("dataset", "rows"), [("abalone", 4177), ("peds1_left", 4000), ("ringnorm_drawn", 7400)]
)
def test_counts_and_binary_data_have_a_thousand_test_rows(dataset, rows):
    assert split_overlap(dataset, "count", 2000) == 1000 / (rows - 1000)


def test_song_has_ten_thousand_test_rows():
    assert split_overlap("song", "regression", 300_000) == 10_000 / 505_345


def test_airline_has_a_hundred_thousand_test_rows():
    assert split_overlap("airline", "binary", 1_955_733) == 100_000 / 1_955_733


@pytest.mark.parametrize(("largest", "expected"), [(200_000, 0.5), (40_000, 1.0)])
def test_airline_type_data_of_unknown_size_train_on_all_but_the_test_rows(largest, expected):
    assert split_overlap("flights", "binary", largest) == expected


def test_small_count_data_have_as_many_test_rows_as_their_split():
    """Of 1500 rows 150 are for validation, and half of the others, 675, are tested on."""
    assert split_overlap("unknown", "count", 750) == 675 / 825


def test_data_of_unknown_size_have_twice_as_many_rows_as_the_largest_training_set():
    assert split_overlap("unknown", "binary", 2000) == 1000 / 3000
    assert split_overlap("unknown", "regression", 2000) == 1 / 3


def test_validation_rows_are_a_tenth_of_the_rows_of_a_published_split_that_are_not_tested_on():
    assert validation_rows("uci_yacht", "regression") == 28
    assert validation_rows("a table of somebody", "regression") == 0
