"""One way of training per line: records made with other settings are never mixed in, and never dropped unsaid."""

from collections import Counter, defaultdict
from operator import itemgetter
from typing import Any

Record = dict[str, Any]

# A line holds these constant over all its sizes.
THROUGHOUT = (
    "data", "split", "kernel", "ard", "mean", "form", "parameterisation", "nu", "nodes", "sampler", "window",
    "tolerance", "max_iterations", "epochs", "evaluate", "dtype",
)  # fmt: skip
# These follow from the size (M is at most n, minibatches begin at some n), so they are settled size by size.
PER_SIZE = ("M", "lr", "minibatch")


def one_protocol(records: list[Record]) -> tuple[list[Record], str]:
    """The records of the settings that most have, and a sentence about those left out ('' if none)."""
    kept, left = _majority(records, THROUGHOUT)
    sizes: dict[int, list[Record]] = defaultdict(list)
    for record in kept:
        sizes[record["cell"]["n"]].append(record)
    kept = []
    for n in sorted(sizes):
        usual, others = _majority(sizes[n], PER_SIZE)
        kept += usual
        left += others
    count = len(records) - len(kept)
    if not count:
        return kept, ""
    return kept, f"{count} cells with {', '.join(dict.fromkeys(left))} are not drawn (--by {left[0]} draws them)"


def _majority(records: list[Record], fields: tuple[str, ...]) -> tuple[list[Record], list[str]]:
    setting_of = itemgetter(*fields)
    settings = [setting_of(record["cell"]) for record in records]
    counts = Counter(settings)
    if len(counts) <= 1:
        return records, []
    best = min(counts, key=lambda setting: (-counts[setting], str(setting)))
    left = [
        f"{name}={value}"
        for setting in sorted(set(counts) - {best}, key=str)
        for name, value, usual in zip(fields, setting, best, strict=True)
        if value != usual
    ]
    return [record for record, setting in zip(records, settings, strict=True) if setting == best], left
