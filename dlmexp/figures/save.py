"""Saves figures reproducibly: the same records give the same bytes, so without dates and random identifiers."""

import io
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure as Canvas

from dlmexp.errors import UserError, nearest
from dlmexp.figures import style
from dlmexp.figures.compose import render
from dlmexp.figures.measure import Drawn
from dlmexp.records.files import write_atomically

FORMATS = ("pdf", "png", "svg")
# Without these, matplotlib writes the time and its version.
METADATA: dict[str, dict[str, str | None]] = {
    "pdf": {"CreationDate": None, "Creator": "dlmexp", "Producer": None},
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": "dlmexp"},
}


def parse_formats(text: str) -> list[str]:
    """`pdf,png` as a list; UserError for an unknown format."""
    formats = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in formats:
        if name not in FORMATS:
            raise UserError(f"--format {name}: {nearest(name, list(FORMATS))}")
    if not formats:
        raise UserError(f"--format is empty: choose from {', '.join(FORMATS)}")
    return list(dict.fromkeys(formats))


def encode(canvas: Canvas, format: str) -> bytes:
    """The figure as the bytes of a file."""
    buffer = io.BytesIO()
    canvas.savefig(buffer, format=format, metadata=METADATA[format])
    return buffer.getvalue()


def save(drawn: Drawn, folder: Path, formats: list[str], page: style.Page = style.Page()) -> list[Path]:  # noqa: B008
    """Writes one file per format, and the numbers as CSV, named after the drawing; returns their paths."""
    with style.use(page.style):
        canvas = render(drawn, page.width)
        contents = {format: encode(canvas, format) for format in formats}
    return write(contents, drawn.numbers, folder, drawn.drawing.name)


def write(contents: dict[str, bytes], numbers: pd.DataFrame, folder: Path, name: str) -> list[Path]:
    """The files of a figure, and its numbers as CSV."""
    table = numbers.to_csv(index=False, lineterminator="\n", float_format="%.10g").encode()
    paths = []
    for suffix, content in {**contents, "csv": table}.items():
        paths.append(folder / f"{name}.{suffix}")
        write_atomically(paths[-1], content)
    return paths
