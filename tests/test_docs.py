"""The documentation builds as a site without a warning: no broken link or anchor, no page outside the navigation."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dlmexp
from tests.conftest import REPOSITORY

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def built(site: Path, config: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


def test_the_site(tmp_path: Path):
    done = built(tmp_path / "site", REPOSITORY / "mkdocs.yml")
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    page = (tmp_path / "site" / "docs" / "api.html").read_text()
    headings = set(re.findall(r'<h3 id="([\w.]+)"', page))
    assert {f"dlmexp.{name}" for name in dlmexp.__all__ if name != "claims"} <= headings
    assert "dlmexp.claims.judge.verdicts" in headings
    assert {f"dlmexp.mlls.{name}" for name in ("DirectLoss", "SquareLoss", "PoissonExpLikelihood", "UPS")} <= headings
    assert "validation_fraction" in page
    science = (tmp_path / "site" / "docs" / "SPEC.html").read_text()
    assert "<td><code>p(y|f)</code>, or <code>p</code></td>" in science
    index = (tmp_path / "site" / "index.html").read_text()
    assert 'src="results/more/figures/inducing.png"' in index
    assert (tmp_path / "site" / "results" / "more" / "figures" / "inducing.png").is_file()
