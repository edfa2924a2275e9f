"""Turn figures into pictures that the HTML page contains, so that it is a single file."""

import base64
from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from dlmexp.presentation.figures.looks import paper_style

COLOUR_COUNT = 256  # the most that a PNG with a palette can have
DOTS_PER_INCH = 130


def png_address(figure: Figure) -> str:
    """Return a matplotlib figure as the `data:` address of a PNG with few colours."""
    figure.set_dpi(DOTS_PER_INCH)
    canvas = FigureCanvasAgg(figure)
    with paper_style():
        canvas.draw()  # faster than `savefig`, which draws twice
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    # Of Pillow's methods to choose few colours, this one keeps the colours of thin lines.
    image = image.quantize(COLOUR_COUNT, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    png = BytesIO()
    image.save(png, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(png.getvalue()).decode()
