"""What an installed copy consists of."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import dlmexp
from dlmexp.paths import conf_dir

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed"),
]
REPOSITORY = Path(__file__).resolve().parent.parent


def test_every_module_config_file_and_what_modules_read_and_nothing_else(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"dlmexp-{dlmexp.__version__}-py3-none-any.whl"
    names = set(ZipFile(wheel).namelist())
    for package in ("dlmexp", "hydra_plugins"):
        files = {path for path in (REPOSITORY / package).rglob("*") if path.is_file() and path.suffix != ".pyc"}
        assert {path.relative_to(REPOSITORY).as_posix() for path in files} <= names
    assert {"dlmexp/py.typed", "dlmexp/report/report.html.j2", "dlmexp/figures/dlmexp.mplstyle"} <= names
    assert {f"dlmexp/conf/{path.relative_to(conf_dir()).as_posix()}" for path in conf_dir().rglob("*.yaml")} <= names
    info = f"dlmexp-{dlmexp.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"dlmexp", "hydra_plugins", info}
