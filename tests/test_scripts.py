"""What stands beside the package: the wheel that is built of it, the runs of `scripts/results`, and
the benchmarks, which measure what they say; none of their times is tested."""

import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

import dlmexp
from dlmexp.cli import main
from dlmexp.common.errors import UserError
from dlmexp.common.paths import conf_dir
from dlmexp.experiment.plan.compose import compose, parts
from dlmexp.experiment.plan.grid import check
from scripts.benchmark import core, models
from scripts.benchmark.agreement import agreement
from scripts.benchmark.agreement import main as compare
from tests.conftest import REPOSITORY


@pytest.mark.processes
@pytest.mark.skipif(
    find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed"
)
def test_the_wheel_has_every_module_config_file_and_what_modules_read_and_nothing_else(
    tmp_path: Path,
):
    command = [
        sys.executable,
        "-m",
        "hatchling",
        "build",
        "--target",
        "wheel",
        "--directory",
        str(tmp_path),
    ]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"dlmexp-{dlmexp.__version__}-py3-none-any.whl"
    names = set(ZipFile(wheel).namelist())
    for package in ("dlmexp", "hydra_plugins"):
        files = {
            path
            for path in (REPOSITORY / package).rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
        assert {path.relative_to(REPOSITORY).as_posix() for path in files} <= names
    assert {
        "dlmexp/py.typed",
        "dlmexp/presentation/report/report.html.j2",
        "dlmexp/presentation/figures/dlmexp.mplstyle",
    } <= names
    assert {
        f"dlmexp/conf/{path.relative_to(conf_dir()).as_posix()}"
        for path in conf_dir().rglob("*.yaml")
    } <= names
    info = f"dlmexp-{dlmexp.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"dlmexp", "hydra_plugins", info}


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
    for part in (part for words in annealed for part in parts(compose(words))):
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
@pytest.mark.parametrize(("suite", "words", "says"), [
    (core, ["memory"], "peak memory"), (core, ["square", "--seconds", "0"], "twenty betas / one"),
    (models, ["memory", "--rows", "2000"], "peak memory"), (models, ["predict", "--rows", "300"], "times as fast"),
])  # fmt: skip
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
