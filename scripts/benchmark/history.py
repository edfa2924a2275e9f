"""The speeds of releases on one NVIDIA H200, as a picture.

    python -m scripts.benchmark history --picture docs/pictures/speed-of-releases.png

`history/gpu_shapes.csv` has model-steps per second (`gpu shapes`), of one batch and of batches in
flight together; `history/whole_runs.csv` the seconds of runs, from the command to the records.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "history"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def read(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of the history."""
    with (FOLDER / name).open(newline="") as stream:
        return list(csv.DictReader(stream))


def draw(file: Path) -> None:
    """Draw steps of the shapes, and seconds of whole runs, against versions."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, (steps, runs) = plt.subplots(1, 2, figsize=(9, 4.4))
    shapes = read("gpu_shapes.csv")
    _draw_lines(steps, shapes, "shape", "together", "-")
    _draw_lines(steps, shapes, "shape", "one_batch", ":")
    steps.set_ylabel("model-steps per second")
    steps.set_title("training steps: batches together (line), one batch (dots)", fontsize=9)
    _draw_lines(runs, read("whole_runs.csv"), "run", "seconds", "-")
    steps.set_yscale("log")
    runs.set_ylabel("seconds")
    runs.set_ylim(bottom=0)
    runs.set_title("whole runs, from the command to the records", fontsize=9)
    for axes in (steps, runs):
        axes.set_xlabel("version")
        axes.grid(axis="y", color="0.9")
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
    figure.tight_layout()
    figure.savefig(file, dpi=150)


def _draw_lines(
    axes: Any, rows: Sequence[dict[str, str]], name: str, value: str, style: str
) -> None:
    """Draw a line for each name, over the versions."""
    names = list(dict.fromkeys(row[name] for row in rows))
    for colour, line in zip(COLOURS, names, strict=False):
        points = [row for row in rows if row[name] == line]
        axes.plot(
            [row["version"] for row in points],
            [float(row[value]) for row in points],
            linestyle=style,
            marker="o",
            markersize=4,
            color=colour,
            label=line if style == "-" else None,
        )


def main(arguments: Sequence[str]) -> int:
    """Draw the picture."""
    parser = argparse.ArgumentParser("scripts.benchmark history", description=__doc__)
    parser.add_argument("--picture", type=Path, required=True, help="a PNG to draw")
    draw(parser.parse_args(arguments).picture)
    return 0
