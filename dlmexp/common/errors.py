"""Errors that the command line reports in one line, with exit code 2."""

import re
from collections.abc import Iterable

LONG_WORD = 300  # characters; longer words are shortened in messages


class UserError(Exception):
    """Something that the user typed or supplied is wrong.

    The message says what it was and what to do instead.
    """


class Unreadable(UserError):  # noqa: N818 -- its name says what is wrong with the content
    """Content from outside is damaged, of another kind, or beyond a limit.

    The message says which.
    """


def nearest(word: str, valid: list[str]) -> str:
    """Return a clause that names the valid words closest to `word`, for the end of a message.

    Capitals and leading dashes do not matter.
    """
    # It takes a while to load, and few commands need it.
    from difflib import get_close_matches

    # Reversed, so that of two words that differ in capitals only the first one is named.
    names = {_plain(name): name for name in reversed(valid)}
    matches = get_close_matches(_plain(word), names, n=3, cutoff=0.5)
    closest = [names[match] for match in matches]
    if closest:
        return f"did you mean {' or '.join(closest)}?"
    if valid:
        return f"valid: {', '.join(sorted(valid))}"
    return "there are none"


def _plain(word: str) -> str:
    return word.casefold().lstrip("-")


def without_long_words(message: str, typed: Iterable[str] = ()) -> str:
    """Return a message in which long arguments, and other long words, are shortened.

    Args:
        message: the message.
        typed: the words that were typed, which may have blanks in them.
    """
    for word in typed:
        for part in (word, word.partition("=")[2]):
            if len(part) > LONG_WORD:
                message = message.replace(part, shortened(part))
    return re.sub(rf"\S{{{LONG_WORD},}}", lambda match: shortened(match[0]), message)


def shortened(content: object, limit: int = 80) -> str:
    """Return what was typed or raised as one line of at most `limit` characters, for a message."""
    text = " ".join(str(content).split())
    return text if len(text) <= limit else f"{text[:limit]}..."
