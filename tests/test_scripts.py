"""Wheel and sdist, the runs of `scripts/results`, and the benchmarks; no time is tested."""

import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import dlmexp
from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.common.paths import conf_dir
from dlmexp.experiment.plan.compose import compose, experiment_configs
from dlmexp.experiment.plan.grid import check
from scripts.benchmark import core, models
from scripts.benchmark.agreement import agreement
from scripts.benchmark.agreement import main as compare
from tests.conftest import REPOSITORY

FAST = "not (slow or processes or published or browser or slurm)"  # as `scripts/test --fast`


needs_hatchling = pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling, which builds packages, is not installed"
)


def build(target: str, folder: Path) -> Path:
    """Return the file of a wheel or an sdist of this repository, built in a folder."""
    command = [sys.executable, "-m", "hatchling", "build"]
    command += ["--target", target, "--directory", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


def files_of(package: str) -> set[str]:
    """Return the paths of all files of a package, from the top of the repository."""
    files = (path for path in (REPOSITORY / package).rglob("*") if path.is_file())
    return {path.relative_to(REPOSITORY).as_posix() for path in files if path.suffix != ".pyc"}


@pytest.mark.processes
@needs_hatchling
def test_wheel_has_all_modules_settings_and_templates_and_nothing_else(tmp_path: Path):
    wheel = build("wheel", tmp_path)
    assert wheel.name == f"dlmexp-{dlmexp.__version__}-py3-none-any.whl"
    names = set(ZipFile(wheel).namelist())
    assert files_of("dlmexp") | files_of("hydra_plugins") <= names
    assert {
        "dlmexp/py.typed",
        "dlmexp/presentation/report/report.html.j2",
        "dlmexp/presentation/figures/dlmexp.mplstyle",
    } <= names
    settings = {path.relative_to(conf_dir()).as_posix() for path in conf_dir().rglob("*.yaml")}
    assert {f"dlmexp/conf/{name}" for name in settings} <= names
    info = f"dlmexp-{dlmexp.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"dlmexp", "hydra_plugins", info}


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an unpacked sdist, which has no results."""
    top = tmp_path_factory.mktemp("sdist")
    archive = build("sdist", top / "built")
    with tarfile.open(archive) as tar:
        tar.extractall(top, filter="data")
    return top / f"dlmexp-{dlmexp.__version__}"


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a copy of the repository, on the code of that copy.

    Hints are checked, and failed assertions explained, where the same tests run in the repository.
    """
    environment = {**os.environ, "PYTHONPATH": str(folder), "NOHINTS": "1"}
    command = [sys.executable, "-m", "pytest", "--assert=plain", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.processes
@needs_hatchling
@pytest.mark.parametrize(
    "words",
    [["--collect-only"], ["-m", FAST, "tests/experiment/plan"]],
    ids=["collection", "fast tests of the plan"],
)
def test_tests_of_an_sdist_pass_without_results(unpacked_sdist: Path, words: list[str]):
    done = pytest_in(unpacked_sdist, *words)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_every_run_of_the_results_is_sound_and_nothing_is_missing() -> None:
    """All parts of the paper, anatomy, and 20 repetitions of the binary and count data; under the
    protocol that leaves least room for what experiments change. Every protocol has the same
    runs."""
    environment = {**os.environ, "PYTHON_WITH_DLMEXP": sys.executable}
    command = [REPOSITORY / "scripts" / "results", "list", "nowhere"]
    listed = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    paper, released, annealed = (
        [line.split() for line in listed.splitlines() if f"protocol={name}" in line]
        for name in ("paper", "released", "annealed")
    )
    assert len(paper) == len(released) == len(annealed) == 4
    most: dict[str, int] = defaultdict(int)
    for part in (part for words in annealed for part in experiment_configs(compose(words))):
        check(part)
        most[part.name] = max(most[part.name], len(part.seeds))
    named = [compose([f"experiment={name}"]).parts for name in ("paper", "anatomy")]
    whole = {
        word.removeprefix("experiment=")
        for several in named
        for part in several
        for word in part[:1]
    }
    assert most.keys() == whole | {"anatomy-floor"}
    assert [most[name] for name in ("class-log", "count-log", "reg-sq", "anatomy-count")] == [
        20,
        20,
        5,
        20,
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "words", "says"),
    [
        (core, ["memory"], "peak memory"),
        (core, ["square", "--seconds", "0"], "twenty betas / one"),
        (models, ["memory", "--rows", "2000"], "peak memory"),
        (models, ["predict", "--rows", "300"], "times as fast"),
    ],
)
def test_suites_measure(suite, words, says, capsys):
    assert suite.main([*words, "--device", "cpu"]) in (0, 1)
    assert says in capsys.readouterr().out


@pytest.mark.slow
def test_agreement_counts_differences_of_the_same_cells(here, tiny):
    for name, changed in {
        "one": "dtype=float64",
        "rounded": "dtype=float32",
        "apart": "seeds=[7]",
    }.items():
        assert main(["run", *tiny, "method=[elbo]", changed, f"results={name}"]) == 0
    one, rounded, apart = map(dlmexp.results, ("one", "rounded", "apart"))
    same, close = (
        {line.name: line.value for line in agreement(one, other)} for other in (one, rounded)
    )
    assert same["cells in both"] == close["cells in both"] == len(one.cells)
    assert (
        same["test NLL identical in every bit"]
        == same["same beta selected, of 2 selections"]
        == 100
    )
    assert (
        0 == same["largest difference in test NLL"] < close["largest difference in test NLL"] < 0.01
    )
    with pytest.raises(UserError, match="in common"):
        agreement(one, apart)
    with pytest.raises(UserError, match="two results folders"):
        compare(["one"])
