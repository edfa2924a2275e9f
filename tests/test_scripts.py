"""What stands beside the package: the wheel that is built of it, the runs of `scripts/results`, and the benchmarks,
which measure what they say; none of their times is tested."""

import os
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pandas as pd
import pytest

import dlmexp
from dlmexp.errors import UserError
from dlmexp.paths import conf_dir
from dlmexp.plan.compose import compose, parts
from dlmexp.plan.grid import check
from scripts.benchmark import core, gpu, models
from scripts.benchmark.agreement import agreement
from scripts.benchmark.agreement import main as compare
from tests.conftest import REPOSITORY


@pytest.mark.processes
@pytest.mark.skipif(find_spec("hatchling") is None, reason="hatchling, which builds the wheel, is not installed")
def test_the_wheel_has_every_module_config_file_and_what_modules_read_and_nothing_else(tmp_path: Path):
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


@pytest.mark.slow
def test_every_run_of_the_results_is_sound_and_nothing_is_missing() -> None:
    """All parts of the paper, anatomy, and 20 repetitions of the binary and count data; under the protocol that leaves
    least room for what experiments change. Every protocol has the same runs."""
    environment = {**os.environ, "PYTHON_WITH_DLMEXP": sys.executable}
    command = [REPOSITORY / "scripts" / "results", "list", "nowhere"]
    listed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
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
    whole = {word.removeprefix("experiment=") for several in named for part in several for word in part[:1]}
    assert most.keys() == whole | {"anatomy-floor"}
    assert [most[name] for name in ("class-log", "count-log", "reg-sq", "anatomy-count")] == [20, 20, 5, 20]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "words", "says"), [
    (core, ["memory"], "peak memory"), (core, ["square", "--seconds", "0"], "twenty betas / one"),
    (models, ["memory", "--rows", "2000"], "peak memory"), (models, ["predict", "--rows", "300"], "times as fast"),
])  # fmt: skip
def test_suites_measure(suite, words, says, capsys):
    assert suite.main([*words, "--device", "cpu"]) in (0, 1)
    assert says in capsys.readouterr().out


@pytest.mark.slow
def test_a_gpu_is_needed_for_its_suite():
    with pytest.raises(UserError, match="no CUDA device"):
        gpu.main(["--device", "cpu"])
    assert gpu.steps_per_second(gpu.Shape(40, 5, 2, 3, 2), "cpu", 2, 0.0) > 0


def test_agreement_counts_differences_of_the_same_cells():
    one = pd.DataFrame({
        "key": ["a", "b", "c"], "status": ["done", "done", "failed"], "dataset": "banana", "n": 100, "seed": [0, 1, 2],
        "objective": "elbo", "variant": "joint", "beta": [1.0, 0.3, 2.0], "converged": [True, True, None],
        "test_nll": [0.5, 0.4, None], "test_mse": None,
    })  # fmt: skip
    other = one.assign(test_nll=[0.5, 0.45, float("nan")], key=["d", "e", "f"])
    results: Any = SimpleNamespace(cells=one, selected=one[:2])
    others: Any = SimpleNamespace(cells=other, selected=other.assign(beta=[1.0, 5.0, 2.0])[:2])
    found = {line.name: line for line in agreement(results, others)}
    assert found["cells in both"].value == 2
    assert found["test NLL identical in every bit"].value == 50
    assert found["largest difference in test NLL"].value == pytest.approx(0.05)
    assert found["same beta selected, of 2 selections"].value == 50
    assert found["beta >= 1: within 0.0001, of 1"].value == 100
    with pytest.raises(UserError, match="in common"):
        agreement(results, SimpleNamespace(cells=other.assign(dataset="ringnorm")))  # pyright: ignore
    with pytest.raises(UserError, match="two results folders"):
        compare(["one"])
