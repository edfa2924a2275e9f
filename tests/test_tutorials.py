"""The tutorials do what they say: their blocks run, print what is shown, and draw their pictures."""

import re
from itertools import zip_longest
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from tests.support.tutorials import NAMES, PAGES, PICTURES, played
from tests.support.values import same_text


def blocks(path: Path) -> np.ndarray:
    """Mean colours of 10 x 10 pixel blocks: blind to the shapes of letters, not to lines, colours and layout."""
    image = matplotlib.image.imread(path)[..., :3]
    height, width = (side // 10 * 10 for side in image.shape[:2])
    return image[:height, :width].reshape(height // 10, 10, width // 10, 10, 3).mean(axis=(1, 3))


def plain(line: str) -> str:
    """Spaces and rules do not count."""
    return " ".join(re.sub("[─━]+", "─", line).split())


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_prints_and_draws_what_it_shows(name: str, tmp_path: Path):
    """Decimal numbers may differ a little, whole ones may not. If a difference is right: scripts/tutorials."""
    shown = (PAGES / name).read_text()
    if "sklearn" in shown:
        pytest.importorskip("sklearn")
    text, pictures = played(name, tmp_path)
    for now, then in zip_longest(text.splitlines(), shown.splitlines(), fillvalue=""):
        assert same_text(plain(now), plain(then), absolute=0.03, relative=0.05), f"{then}\nis now\n{now}"
    for picture, path in pictures.items():
        drawn, before = blocks(path), blocks(PICTURES / picture)
        assert np.abs(np.subtract(drawn.shape, before.shape)).max() <= 2
        rows, columns = np.minimum(drawn.shape, before.shape)[:2]
        assert np.abs(drawn[:rows, :columns] - before[:rows, :columns]).mean() < 0.04, picture
