"""The one exception that the command line turns into a sentence and exit code 2."""


class UserError(Exception):
    """Something the user typed or supplied is wrong; the message says what it was and what to do instead."""


def nearest(word: str, valid: list[str]) -> str:
    """A clause naming the valid words closest to `word`, for the end of an error sentence."""
    from difflib import get_close_matches

    close = get_close_matches(word, valid, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"valid: {', '.join(sorted(valid))}"
