"""Write published numbers and ours as a table for people, and as JSON for programs."""

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

MET_OR_BETTER = (AnchorVerdict.MET, AnchorVerdict.BETTER)


def anchor_table(anchors: Sequence[Anchor]) -> Table:
    """Return a table with a row for each published number."""
    table = Table(box=SIMPLE)
    for header in ("data set", "method", "M", "metric"):
        table.add_column(header)
    for header in ("published", "ours", "difference"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("why")
    for anchor in anchors:
        table.add_row(*_cells(anchor))
    return table


def _cells(anchor: Anchor) -> list[str]:
    """Return the row of a published number."""
    inducing = "" if anchor.M is None else str(anchor.M)
    difference = "-" if math.isnan(anchor.difference) else f"{anchor.difference:+.1f}"
    return [
        anchor.dataset,
        f"{anchor.method} | {method_label(anchor.counterpart)}",
        inducing,
        anchor.metric,
        _with_error(anchor.value, anchor.error),
        _with_error(anchor.ours, anchor.our_error),
        difference,
        anchor.verdict,
        anchor.why,
    ]


def _with_error(value: float, error: float) -> str:
    """Return a text such as `0.614±0.02`; `-` if there is no value."""
    if math.isnan(value):
        return "-"
    if math.isnan(error):
        return f"{value:.4g}"
    return f"{value:.4g}±{error:.2g}"


def caption(anchors: Sequence[Anchor]) -> list[str]:
    """Return the lines below the table: how many numbers are met, and all sources."""
    counts = Counter(anchor.verdict for anchor in anchors)
    lines = [f"{counted(len(anchors), 'published number')}: {_tally(counts)}"]
    run_count = len(anchors) - counts[AnchorVerdict.NOT_RUN]
    if run_count:
        met_or_better = sum(counts[verdict] for verdict in MET_OR_BETTER)
        percentage = 100 * met_or_better / run_count
        lines.append(
            f"met or better: {met_or_better} of {run_count} that were run ({percentage:.0f} %)"
        )
    lines.append(
        f"met: within {MET_WITHIN:g} standard errors of the difference; ours: mean over splits"
    )
    sources = dict.fromkeys(anchor.source for anchor in anchors)
    lines += [f"source: {source}" for source in sources]
    return lines


def _tally(counts: Counter[AnchorVerdict]) -> str:
    """Return counts of verdicts as a text such as `1 met, 80 not run`."""
    parts = [f"{counts[verdict]} {verdict}" for verdict in AnchorVerdict if counts[verdict]]
    return ", ".join(parts)


def as_json(anchors: Sequence[Anchor]) -> list[dict[str, Any]]:
    """Return the comparisons as values of JSON, with 6 significant digits; None if unknown."""
    return [_json_values(anchor) for anchor in anchors]


def _json_values(anchor: Anchor) -> dict[str, Any]:
    """Return the fields of a comparison as values of JSON."""
    values = asdict(anchor)
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = float(f"{value:.6g}") if math.isfinite(value) else None
    return values
