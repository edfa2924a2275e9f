"""Files: the same bytes for the same records, and a style that stays."""

from pathlib import Path

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from dlmexp.errors import UserError
from dlmexp.figures.measure import measure
from dlmexp.figures.registry import FIGURES
from dlmexp.figures.save import parse_formats, save
from dlmexp.figures.variants import Drawing
from tests.support.made_up import sweep

pytestmark = pytest.mark.slow

FOUR = ("elbo", "beta_elbo", "joint_log_dlm", "fixed_log_dlm")
BASELINE = Path(__file__).with_name("baseline-default.png")


@pytest.fixture
def default(results):
    figure = FIGURES["default"]
    found = results(*sweep("ringnorm_drawn", FOUR, [100, 500], range(3), 4))
    return measure(Drawing(figure, figure.id, figure.panels), [found])


def test_files_beside_each_other(default, tmp_path: Path) -> None:
    paths = save(default, tmp_path / "figures", ["pdf", "png", "svg"])
    assert [path.name for path in paths] == ["default.pdf", "default.png", "default.svg", "default.csv"]
    numbers = pd.read_csv(paths[-1])
    assert set(numbers["method"]) == set(FOUR)
    assert {"x", "mean", "std", "sem", "repetitions", "failed"} <= set(numbers.columns)


def test_the_same_records_give_the_same_bytes(default, tmp_path: Path) -> None:
    first, second = (save(default, tmp_path / name, ["pdf", "png", "svg"]) for name in ("a", "b"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert b"CreationDate" not in first[0].read_bytes()
    assert b"<dc:date>" not in first[2].read_bytes()


def blocks(path: Path) -> np.ndarray:
    """Mean colours of 10 x 10 pixel blocks: blind to the shapes of letters, not to lines, colours and layout."""
    image = matplotlib.image.imread(path)[..., :3]
    height, width = (side // 10 * 10 for side in image.shape[:2])
    return image[:height, :width].reshape(height // 10, 10, width // 10, 10, 3).mean(axis=(1, 3))


def test_style_is_that_of_the_baseline(default, tmp_path: Path) -> None:
    """Redraw the baseline with `save(...)` and look at it when the style is changed on purpose."""
    path = save(default, tmp_path, ["png"])[0]
    found, expected = blocks(path), blocks(BASELINE)
    assert abs(found.shape[0] - expected.shape[0]) <= 1
    assert abs(found.shape[1] - expected.shape[1]) <= 1
    rows, columns = (min(a, b) for a, b in zip(found.shape[:2], expected.shape[:2], strict=True))
    difference = np.abs(found[:rows, :columns] - expected[:rows, :columns])
    # Other fonts move letters by a pixel or two (below 0.01 on average); another colour or marker size shows at once.
    assert difference.mean() < 0.012
    assert np.percentile(difference, 99) < 0.15


def test_the_comparison_notices_another_colour(default, tmp_path: Path, monkeypatch) -> None:
    from dataclasses import replace

    from dlmexp.figures import style

    monkeypatch.setitem(style.METHODS, "joint_log_dlm", replace(style.METHODS["joint_log_dlm"], colour="#00A0FF"))
    found, expected = blocks(save(default, tmp_path, ["png"])[0]), blocks(BASELINE)
    assert np.percentile(np.abs(found - expected), 99) > 0.15


def test_formats() -> None:
    assert parse_formats("pdf, PNG,pdf") == ["pdf", "png"]
    with pytest.raises(UserError, match="pdf"):
        parse_formats("pfd")
    with pytest.raises(UserError, match="empty"):
        parse_formats(",")
