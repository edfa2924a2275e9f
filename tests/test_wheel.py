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


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = folder.iterdir()
    assert wheel.name == f"dlmexp-{dlmexp.__version__}-py3-none-any.whl"
    return set(ZipFile(wheel).namelist())


def test_every_module_and_what_modules_read(names: set[str]):
    for package in ("dlmexp", "hydra_plugins"):
        files = {path for path in (REPOSITORY / package).rglob("*") if path.is_file() and path.suffix != ".pyc"}
        assert {path.relative_to(REPOSITORY).as_posix() for path in files} <= names
    assert {"dlmexp/py.typed", "dlmexp/report/report.html.j2", "dlmexp/figures/dlmexp.mplstyle"} <= names


def test_every_config_file(names: set[str]):
    assert {f"dlmexp/conf/{path.relative_to(conf_dir()).as_posix()}" for path in conf_dir().rglob("*.yaml")} <= names


def test_nothing_else(names: set[str]):
    assert {name.partition("/")[0] for name in names} == {
        "dlmexp", "hydra_plugins", f"dlmexp-{dlmexp.__version__}.dist-info"
    }  # fmt: skip
