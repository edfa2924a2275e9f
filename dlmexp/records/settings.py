"""One way of training per line: records made with other settings are never mixed in, and never dropped unsaid."""

from collections import Counter, defaultdict
from typing import Any

from dlmexp.records.selection import Choice

# A line holds these constant over all its sizes.
THROUGHOUT = (
    "data", "split", "kernel", "ard", "mean", "form", "parameterisation", "options", "window", "tolerance",
    "max_iterations", "epochs", "evaluate", "dtype", "initial", "inducing", "criterion", "final_lr", "decay",
    "epsilon", "resolution",
)  # fmt: skip
# These follow from the size (M is at most n, minibatches begin at some n), so they are settled size by size.
PER_SIZE = ("M", "lr", "minibatch", "minibatch_rows")


def same_settings(several: list[Choice], preferred_betas: str) -> tuple[list[Choice], list[str]]:
    """The candidates that one line is made of, and a sentence about each kind that is left out.

    Of several beta grids: the preferred one, else the one with most candidates. Of several training settings: those
    with most candidates.
    """
    kept, notes = _of_one_grid(several, preferred_betas)
    total = sum(len(one.records) for one in kept)
    kept, others = _majority(kept, THROUGHOUT)
    sizes: dict[int, list[Choice]] = defaultdict(list)
    for one in kept:
        sizes[one.cell.n].append(one)
    kept = []
    for n in sorted(sizes):
        usual, rest = _majority(sizes[n], PER_SIZE)
        kept += usual
        others += rest
    if count := total - sum(len(one.records) for one in kept):
        named = ", ".join(dict.fromkeys(others))
        notes.append(f"{count} cells with {named} are not drawn (--by {others[0]} draws them)")
    return kept, notes


def _of_one_grid(several: list[Choice], preferred: str) -> tuple[list[Choice], list[str]]:
    counts = Counter(one.betas for one in several)
    if len(counts) <= 1:
        return several, []
    best = preferred if preferred in counts else _most_frequent(counts)
    others = [f"{count} from '{betas}'" for betas, count in counts.items() if betas != best]
    note = f"beta is selected from '{best}'; selections from other betas are left out: {', '.join(others)}"
    return [one for one in several if one.betas == best], [note]


def _majority(several: list[Choice], fields: tuple[str, ...]) -> tuple[list[Choice], list[str]]:
    settings = [one.cell.values(fields) for one in several]
    counts: Counter[tuple] = Counter()
    for setting, one in zip(settings, several, strict=True):
        counts[setting] += len(one.records)
    if len(counts) <= 1:
        return several, []
    best = _most_frequent(counts)
    left = [
        f"{name}={value}"
        for setting in sorted(set(counts) - {best}, key=str)
        for name, value in _differing(fields, setting, best)
    ]
    return [one for one, setting in zip(several, settings, strict=True) if setting == best], left


def _differing(fields: tuple[str, ...], setting: tuple, usual: tuple) -> list[tuple[str, object]]:
    """Fields with another value than usual; an estimator's options under their own names."""
    found: list[tuple[str, object]] = []
    for name, value, other in zip(fields, setting, usual, strict=True):
        if name == "options":
            theirs, ours = dict(value), dict(other)
            found += [(n, theirs.get(n)) for n in sorted({*theirs, *ours}) if theirs.get(n) != ours.get(n)]
        elif value != other:
            found.append((name, value))
    return found


def _most_frequent(counts: Counter) -> Any:
    return min(counts, key=lambda setting: (-counts[setting], str(setting)))
