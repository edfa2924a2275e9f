"""The example of the documentation runs and learns."""

import runpy
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "scripts" / "example_mlls.py"


def test_example_learns(capsys):
    before = torch.get_default_dtype()
    runpy.run_path(str(EXAMPLE))
    assert torch.get_default_dtype() == before
    words = capsys.readouterr().out.split()
    assert words[:2] == ["test", "NLL"]
    assert float(words[2]) < 0.45  # a constant prediction has 0.69
