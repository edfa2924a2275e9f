"""Warnings about results that were made by different versions of a plugin."""

from collections import Counter, defaultdict

import pandas as pd

from dlmexp.common.console import counted


def mixed_versions(cells: pd.DataFrame) -> list[str]:
    """Return a warning for each plugin that had several versions when these cells were trained."""
    warnings: list[str] = []
    for package, counts in sorted(_cells_by_version(cells).items()):
        if len(counts) < 2:
            continue
        parts: list[str] = []
        for version, count in counts.items():
            parts.append(f"{version}: {counted(count, 'cell')}")
        warnings.append(
            f"{len(counts)} versions of the plugin {package} made these results "
            f"({', '.join(parts)}); rerun=changed trains the cells again that are not by its "
            "present version"
        )
    return warnings


def _cells_by_version(cells: pd.DataFrame) -> dict[str, Counter[str]]:
    """Return the number of cells by package and version.

    The column `plugins` has texts such as `package=version other_package=version`.
    """
    by_package = defaultdict[str, Counter[str]](Counter)
    if "plugins" not in cells:
        return by_package
    distinct_cells = cells.drop_duplicates("key")
    texts = distinct_cells["plugins"].dropna().astype(str)
    for text, count in texts.value_counts().items():
        for word in str(text).split():
            package, _, version = word.partition("=")
            by_package[package][version] += int(count)
    return by_package
