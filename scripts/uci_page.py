"""The tables of results/uci/README.md, from its packed records.

    python -m scripts.uci_page results/uci            # print them
    python -m scripts.uci_page results/uci --write    # put them into the page

The page has them between two comments, the second of which is `<!-- end -->`.
"""

import argparse
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from dlmexp.cli import main as dlmexp

METRICS = {"regression": ("nll", "crps", "rmse"), "binary": ("nll", "error"), "count": ("nll",)}
NAMES = {"nll": "NLL", "crps": "CRPS", "rmse": "RMSE", "error": "error rate"}
COMMENT = "<!-- python -m scripts.uci_page results/uci -->\n"
PART = re.compile(rf"({re.escape(COMMENT)})(.*?)(<!-- end -->)", re.DOTALL)

Board = dict[str, Any]
"""A leaderboard as `dlmexp rank --json` prints it."""


def boards(folder: str, metric: str) -> dict[str, Board]:
    """Return the board with the most data sets, by task."""
    output = StringIO()
    with redirect_stdout(output):
        code = dlmexp(["rank", "--results", folder, "--metric", metric, "--json"])
    if code:
        raise SystemExit(code)
    largest: dict[str, Board] = {}
    for board in json.loads(output.getvalue()):
        known = largest.get(board["task"])
        if known is None or len(board["data_sets"]) > len(known["data_sets"]):
            largest[board["task"]] = board
    return largest


def tables(folder: str) -> Iterator[str]:
    """Yield a table in Markdown per task, with its title."""
    by_metric = {metric: boards(folder, metric) for metric in NAMES}
    for task, metrics in METRICS.items():
        yield table({metric: by_metric[metric][task] for metric in metrics})


def table(by_metric: dict[str, Board]) -> str:
    """Return the table of a task: ranks and gains by metric, in the order of the first."""
    first = next(iter(by_metric.values()))
    headers = ["method"]
    for metric in by_metric:
        headers += [f"{NAMES[metric]}: mean rank", "won / tied / lost", "median gain"]
    headers += ["seconds", "at limit"]
    lines = [_title(first), "", _row(headers), _row(["---"] * len(headers))]
    for method in first["methods"]:
        cells = [method["label"]]
        for board in by_metric.values():
            cells += _ranked(board, method["method"])
        cells += [_number(method["seconds"]), _share_at_limit(method)]
        lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _title(board: Board) -> str:
    names = [data_set["data_set"].removeprefix("uci_") for data_set in board["data_sets"]]
    splits = [data_set["splits"] for data_set in board["data_sets"]]
    splits_in_words = f"{min(splits)} to {max(splits)} splits"
    if min(splits) == max(splits):
        splits_in_words = f"{splits[0]} splits"
    return f"**{board['task'].capitalize()}**, {splits_in_words} of {', '.join(names)}:"


def _ranked(board: Board, method: str) -> list[str]:
    """Return rank with interval, comparisons with ELBO and gain of a method."""
    found = [entry for entry in board["methods"] if entry["method"] == method]
    if not found:
        return ["", "", ""]
    entry = found[0]
    low, high = entry["interval"]
    rank = f"{entry['mean_rank']:.1f} [{low:.1f}, {high:.1f}]"
    if method == board["against"]:
        return [rank, "", ""]
    comparisons = f"{entry['won']} / {entry['tied']} / {entry['lost']}"
    return [rank, comparisons, _gain(entry["median_gain"])]


def _gain(share: float | None) -> str:
    if share is None:
        return ""
    if share > 1:
        return f"x {1 + share:.2g}"
    return f"{100 * share:+.1f} %"


def _number(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2g}"


def _share_at_limit(method: Board) -> str:
    if not method["fits"] or method["trained_by"] != "dlmexp":
        return ""
    return f"{method['unconverged'] / method['fits']:.0%}".replace("%", " %")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the tables, or put them into the page."""
    parser = argparse.ArgumentParser("python -m scripts.uci_page", description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--write", action="store_true", help="into README.md of the folder")
    args = parser.parse_args()
    text = "\n".join(tables(args.folder))
    if not args.write:
        print(text, end="")
        return
    page = Path(args.folder) / "README.md"
    written = PART.sub(lambda part: f"{part[1]}\n{text}\n{part[3]}", page.read_text("utf-8"))
    page.write_text(written, "utf-8")


if __name__ == "__main__":
    main()
