"""The end of an error sentence."""

from dlmexp.errors import nearest


def test_close_words_first():
    assert nearest("cadatta", ["pol", "cadata", "banana"]) == "did you mean cadata?"
    assert nearest("fixed_dlm", ["fixed_sq_dlm", "fixed_log_dlm", "elbo"]).startswith("did you mean fixed_")


def test_capitals_do_not_matter():
    assert nearest("ELBO", ["elbo", "fitc"]) == "did you mean elbo?"
    assert nearest("price", ["Price", "Size"]) == "did you mean Price?"


def test_all_words_where_none_is_close():
    assert nearest("zzz", ["b", "a"]) == "valid: a, b"


def test_no_words_at_all():
    assert nearest("zzz", []) == "there are none"
