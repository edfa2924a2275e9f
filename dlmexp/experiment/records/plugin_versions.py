"""Results that were made by different versions of a plugin, in words."""

from collections import Counter, defaultdict

import pandas as pd

from dlmexp.common.console import counted


def mixed_versions(cells: pd.DataFrame) -> list[str]:
    """Return a sentence for each plugin of which several versions made these cells."""
    if "plugins" not in cells:
        return []
    distinct = cells.drop_duplicates("key")
    by_package = defaultdict[str, Counter[str]](Counter)
    for text, count in distinct["plugins"].dropna().astype(str).value_counts().items():
        for word in str(text).split():
            package, _, version = word.partition("=")
            by_package[package][version] += int(count)
    sentences: list[str] = []
    for package, counts in sorted(by_package.items()):
        if len(counts) < 2:
            continue
        parts = [f"{version}: {counted(count, 'cell')}" for version, count in counts.items()]
        sentences.append(
            f"{len(counts)} versions of the plugin {package} made these results "
            f"({', '.join(parts)}); rerun=changed trains again what is not by its present one"
        )
    return sentences
