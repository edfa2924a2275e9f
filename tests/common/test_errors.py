"""Parts of error messages."""

import pytest

from dlmexp.common.errors import nearest, shortened, without_long_words


@pytest.mark.parametrize(
    ("word", "valid", "expected"),
    [
        ("--M", ["m=", "size="], "did you mean m=?"),
        ("sarcoss", ["pol", "sarcos"], "did you mean sarcos?"),
        ("elbow", ["elbo", "beta_elbo"], "did you mean elbo or beta_elbo?"),
        ("ELBO", ["Elbo", "elbo", "other"], "did you mean Elbo?"),
        ("xyz", ["pol", "banana"], "valid: banana, pol"),
        ("xyz", [], "there are none"),
    ],
)
def test_nearest_names_what_is_similar_or_all(word, valid, expected):
    assert nearest(word, valid) == expected


def test_nearest_names_three_words_at_most():
    assert nearest("seed", ["seeda", "seedb", "seedc", "seedd"]).count("seed") == 3


def test_short_text_stays_in_one_line():
    assert shortened("a\n  b\tc") == "a b c"
    assert shortened(7) == "7"


def test_long_text_is_cut():
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 80 + "..."
    assert shortened("abc", limit=2) == "ab..."


def test_long_words_are_shortened_in_messages():
    message = without_long_words(f"name={'x' * 5000}: give a short one; " + "words " * 100)
    assert message.startswith("name=xxx")
    assert "...: " not in message[:50]
    assert "give a short one" in message
    assert message.endswith("words " * 100)
    assert len(message) < 1000


def test_long_argument_with_blanks_is_shortened():
    argument = "a b " * 1000
    message = without_long_words(f"'{argument}' is no job", [argument])
    assert message.endswith("...' is no job")
    assert len(message) < 200
