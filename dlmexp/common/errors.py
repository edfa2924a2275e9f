"""The exception that the command line turns into a sentence and exit code 2, and its kind for
content from outside."""


class UserError(Exception):
    """Something the user typed or supplied is wrong; the message says what it was and what to do
    instead."""


class Unreadable(UserError):
    """Content from outside that is damaged, not what it should be, or beyond a limit; the message
    says which."""


def nearest(word: str, valid: list[str]) -> str:
    """A clause naming the valid words closest to `word`, for the end of an error sentence; capitals
    and leading dashes do not matter."""
    from difflib import get_close_matches

    spelled = {name.casefold().lstrip("-"): name for name in reversed(valid)}
    close = [
        spelled[name]
        for name in get_close_matches(word.casefold().lstrip("-"), spelled, n=3, cutoff=0.5)
    ]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"valid: {', '.join(sorted(valid))}" if valid else "there are none"


def shortened(what: object, most: int = 80) -> str:
    """What was typed or raised, as one line of at most so many letters, for an error sentence."""
    text = " ".join(str(what).split())
    return text if len(text) <= most else f"{text[:most]}..."
