"""The recipes of CONTRIBUTING.md, followed literally: their files make a package that adds one thing of each kind."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

RECIPES = Path(__file__).parent.parent / "CONTRIBUTING.md"
BLOCK = re.compile(r"^```(?:python|yaml)\n# (my_package/\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KINDS = ("loaders", "kernels", "likelihoods", "objectives", "estimators", "figures", "claims")
pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the recipes, and the data that they speak of."""
    top = tmp_path_factory.mktemp("recipes")
    for name, content in BLOCK.findall(RECIPES.read_text()):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=300) > 0).astype(int)
    (top / "data" / "waves").mkdir(parents=True)
    np.savetxt(top / "data" / "waves" / "waves.txt", np.column_stack([X, y]), fmt="%.6g")
    return top


def dlmexp(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dlmexp", *arguments]
    variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(RECIPES.parent), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)


def test_there_is_a_recipe_for_each_kind(workplace: Path):
    assert {path.stem for path in (workplace / "my_package").glob("*.py")} == {"__init__", *KINDS}


def test_all_seven_kinds_from_a_run_to_a_claim(workplace: Path):
    quick = ["training.binary.max_iterations=60", "device=cpu"]
    ran = dlmexp(workplace, "run", "plugins=[my_package]", "experiment=waves", *quick)
    assert ran.returncode == 0, ran.stderr
    assert "18 of 18 cells done, 0 failed" in ran.stdout  # 2 sizes x 3 seeds x (1 ELBO + 2 betas)
    assert re.search(r"waves +80 +8 +joint_tempered +antithetic-4", ran.stdout)
    record = json.loads(next((workplace / "results" / "records" / "waves").glob("*.json")).read_text())
    assert (record["cell"]["kernel"], record["cell"]["likelihood"]) == ("rational", "cauchit")
    assert {"nll", "error", "brier", "ece"} == set(record["result"]["test"])

    drawn = dlmexp(workplace, "--plugins", "my_package", "plot", "waves", "--format", "png")
    assert drawn.returncode == 0, drawn.stderr
    points = (workplace / "results" / "figures" / "waves.csv").read_text()
    assert "joint_tempered,antithetic,4" in points
    assert "missing" not in drawn.stdout

    judged = dlmexp(workplace, "claims", "--json", DLMEXP_PLUGINS="my_package")
    claim = next(one for one in json.loads(judged.stdout) if one["number"] == 100)
    ((setting, verdict),) = claim["verdicts"].items()
    assert setting == "paper, max_iterations=60, beta=10, 1", "not the protocol as it stands"
    assert verdict in ("holds", "fails", "mixed", "undecided")

    again = dlmexp(workplace, "run", "plugins=[my_package]", "experiment=waves", *quick, "workers=2")
    assert "18 of 18 cells done" in again.stdout


def test_names_are_checked_and_completed_as_ours_are(workplace: Path):
    wrong = dlmexp(workplace, "run", "plugins=[my_package]", "dataset=wavs")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "did you mean waves" in wrong.stderr
    wrong = dlmexp(workplace, "run", "plugins=[my_package]", "dataset=waves", "dataset.waves.likelihood=cauchy")
    assert "did you mean cauchit" in wrong.stderr
    wrong = dlmexp(workplace, "run", "plugins=[my_package]", "experiment=waves", "estimator.antithetic.weight=x")
    assert "estimator.antithetic.weight=x: give a number" in wrong.stderr
    listed = dlmexp(workplace, "--plugins", "my_package", "data", "list")
    assert "waves" in listed.stdout
    line = "dlmexp run dataset=wav"
    query = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "DLMEXP_PLUGINS": "my_package"}
    completed = dlmexp(workplace, "run", "-sc", "query=bash", **query)
    assert "dataset=waves" in completed.stdout


def test_entry_points_need_no_words(workplace: Path):
    """As `pip install` leaves them: the package's own list of entry points, beside the package."""
    info = workplace / "my_package-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    groups = {"conf": "my_package.conf"} | {kind: f"my_package.{kind}" for kind in KINDS}
    lines = [f"[dlmexp.{group}]\nmy_package = {module}\n" for group, module in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (workplace / "my_package" / "__init__.py").write_text("")  # nothing is imported that is not asked for
    where = {"PYTHONPATH": f"{RECIPES.parent}:{workplace}"}
    settings = ["training.binary.max_iterations=20", "seeds=[5]", "device=cpu", "plugins=[]", "results=other"]
    ran = dlmexp(workplace, "run", "experiment=waves", *settings, **where)
    assert ran.returncode == 0, ran.stderr
    assert "6 of 6 cells done" in ran.stdout
    figures = dlmexp(workplace, "plot", "--list", "--results", "nowhere", **where)
    assert "waves" in figures.stdout


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "there is no module 'broken'"),
        ("import not_installed_anywhere", "it imports 'not_installed_anywhere', which is not installed"),
        ("1 / 0", "can't be imported: ZeroDivisionError"),
        ("from dlmexp.objectives import *\nOBJECTIVES.add('elbo', 3)", "there are two objectives named 'elbo'"),
    ],
)
def test_a_plugin_that_is_broken_is_one_sentence(tmp_path: Path, content: str | None, sentence: str):
    if content is not None:
        (tmp_path / "broken.py").write_text(content)
    ran = dlmexp(tmp_path, "run", "plugins=[broken]", "dataset=ringnorm_drawn")
    assert ran.returncode == 2
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "results").exists()
