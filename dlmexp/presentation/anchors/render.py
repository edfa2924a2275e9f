"""Published numbers beside ours, as a table for people and as JSON for programs."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from dlmexp.common.console import counted
from dlmexp.presentation.anchors.compare import MET_WITHIN, Anchor, AnchorVerdict
from dlmexp.presentation.labels import method_label

GOOD = (AnchorVerdict.MET, AnchorVerdict.BETTER)


def anchor_table(found: Sequence[Anchor]) -> Table:
    """Return a row for each published number."""
    table = Table(box=SIMPLE)
    for header in ("data set", "method", "M", "metric"):
        table.add_column(header)
    for header in ("published", "ours", "difference"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("why")
    for anchor in found:
        table.add_row(
            anchor.dataset,
            f"{anchor.method} | {method_label(anchor.counterpart)}",
            "" if anchor.M is None else str(anchor.M),
            anchor.metric,
            _with_error(anchor.value, anchor.error),
            _with_error(anchor.ours, anchor.our_error),
            "-" if math.isnan(anchor.difference) else f"{anchor.difference:+.1f}",
            anchor.verdict,
            anchor.why,
        )
    return table


def _with_error(value: float, error: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.4g}" if math.isnan(error) else f"{value:.4g}±{error:.2g}"


def caption(found: Sequence[Anchor]) -> list[str]:
    """Return the lines below the table: how many are met, and where the numbers come from."""
    counts = Counter(anchor.verdict for anchor in found)
    run = len(found) - counts[AnchorVerdict.NOT_RUN]
    good = sum(counts[verdict] for verdict in GOOD)
    parts = [f"{counts[verdict]} {verdict}" for verdict in AnchorVerdict if counts[verdict]]
    lines = [f"{counted(len(found), 'published number')}: {', '.join(parts)}"]
    if run:
        share = 100 * good / run
        lines.append(f"met or better: {good} of {run} that were run ({share:.0f} %)")
    lines.append(
        f"met: within {MET_WITHIN:g} standard errors of the difference; ours: mean over splits"
    )
    return lines + [f"source: {source}" for source in dict.fromkeys(a.source for a in found)]


def as_json(found: Sequence[Anchor]) -> list[dict[str, Any]]:
    """Return the numbers as plain values with 6 digits; null stands for what is not known."""
    rows = []
    for anchor in found:
        values = asdict(anchor)
        for name, value in values.items():
            if isinstance(value, float):
                values[name] = float(f"{value:.6g}") if math.isfinite(value) else None
        rows.append(values)
    return rows
