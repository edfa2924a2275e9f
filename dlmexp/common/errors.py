"""Errors that the command line reports in one line, with exit code 2."""

import re
from collections.abc import Iterable

LONG_WORD = 300  # characters; words of this length or more are shortened in messages


class UserError(Exception):
    """Something that the user typed or supplied is wrong.

    The message says what it was and what to do instead.
    """


class Unreadable(UserError):  # noqa: N818 -- its name says what is wrong with the content
    """Content from outside is damaged, has another format, or exceeds a limit."""


def nearest(word: str, valid: list[str]) -> str:
    """Return a clause for the end of a message: which valid words `word` may stand for.

    Words are compared without capitals and leading dashes. If no valid word is close, the clause
    lists all of them.
    """
    # difflib takes a while to import, and few commands need it.
    from difflib import get_close_matches

    # Of valid words that differ only in capitals, the first one is offered.
    valid_by_plain: dict[str, str] = {}
    for name in valid:
        valid_by_plain.setdefault(_plain(name), name)
    matches = get_close_matches(_plain(word), valid_by_plain, n=3, cutoff=0.5)
    closest = [valid_by_plain[match] for match in matches]
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
        typed: the arguments of the command line. They may contain blanks, so that they would not
            be recognised as long words.
    """
    for argument in typed:
        _, _, value = argument.partition("=")
        for text in (argument, value):
            if len(text) > LONG_WORD:
                message = message.replace(text, shortened(text))
    return re.sub(rf"\S{{{LONG_WORD},}}", lambda match: shortened(match[0]), message)


def shortened(content: object, limit: int = 80) -> str:
    """Return a value or an error as text on one line, cut after `limit` characters."""
    text = " ".join(str(content).split())
    return text if len(text) <= limit else f"{text[:limit]}..."
