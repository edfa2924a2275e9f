"""The tutorials do what they say: their blocks run, print what is shown, and draw their pictures."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from tests.support.tutorials import PAGES, PICTURES, differences, names, played


def blocks(path: Path) -> np.ndarray:
    """Mean colours of 10 x 10 pixel blocks: blind to the shapes of letters, not to lines, colours and layout."""
    image = matplotlib.image.imread(path)[..., :3]
    height, width = (side // 10 * 10 for side in image.shape[:2])
    return image[:height, :width].reshape(height // 10, 10, width // 10, 10, 3).mean(axis=(1, 3))


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("name", names())
def test_a_tutorial_prints_and_draws_what_it_shows(name: str, tmp_path: Path):
    if "sklearn" in (PAGES / name).read_text():
        pytest.importorskip("sklearn")
    text, pictures = played(name, tmp_path)
    assert not differences((PAGES / name).read_text(), text), "if this is right: scripts/tutorials, and look at it"
    for picture, path in pictures.items():
        drawn, shown = blocks(path), blocks(PAGES / PICTURES / picture)
        assert np.abs(np.subtract(drawn.shape, shown.shape)).max() <= 2
        rows, columns = np.minimum(drawn.shape, shown.shape)[:2]
        assert np.abs(drawn[:rows, :columns] - shown[:rows, :columns]).mean() < 0.04, picture


def test_every_picture_belongs_to_a_tutorial():
    shown = "".join((PAGES / name).read_text() for name in names())
    assert all(f"]({PICTURES}/{path.name})" in shown for path in (PAGES / PICTURES).iterdir())
