"""Asking before something is stopped or deleted."""

import sys

from dlmexp.errors import UserError


def confirmed(question: str, yes: bool) -> bool:
    """Whether the user agrees; with `--yes` nobody is asked. `UserError` where nobody can be."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise UserError(f"{question} nobody can answer here: add --yes")
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
