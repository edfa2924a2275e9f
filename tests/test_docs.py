"""The documentation: it builds as a site without a warning (no broken link or anchor, no page
outside the navigation); the recipes of docs/PLUGINS.md, followed literally, make a package that
adds one thing of each kind."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dlmexp
from tests.conftest import REPOSITORY
from tests.support.processes import Launcher

BLOCK = re.compile(
    r"^`(my_package/\S+)`:\n\n```(?:python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
KINDS = ("loaders", "kernels", "likelihoods", "objectives", "estimators", "figures", "claims")
pytestmark = pytest.mark.processes


@pytest.mark.slow
def test_the_site(tmp_path: Path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    page = (tmp_path / "site" / "docs" / "api.html").read_text()
    headings = set(re.findall(r'<h3 id="([\w.]+)"', page))
    assert {f"dlmexp.{name}" for name in dlmexp.__all__} <= headings
    assert {
        f"dlmexp.mlls.{name}"
        for name in ("DirectLoss", "SquareLoss", "PoissonExpLikelihood", "UPS")
    } <= headings
    assert (tmp_path / "site" / "results" / "more" / "figures" / "inducing.png").is_file()
    home = (tmp_path / "site" / "index.html").read_text()
    assert "Should you use DLM?" in home


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package of the recipes, and the data that they speak of."""
    top = tmp_path_factory.mktemp("recipes")
    for name, content in BLOCK.findall((REPOSITORY / "docs" / "PLUGINS.md").read_text()):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:  # some files have several blocks
            file.write(content)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=300) > 0).astype(int)
    (top / "tables" / "waves").mkdir(parents=True)
    np.savetxt(top / "tables" / "waves" / "waves.txt", np.column_stack([X, y]), fmt="%.6g")
    return top


@pytest.fixture
def command(workplace: Path, tmp_path: Path, launcher: Launcher) -> Callable[..., tuple[int, str]]:
    """`command(*words, **environment)` runs a command in the workplace; its exit code, and what it
    said."""

    def run(*words: str, **environment: str) -> tuple[int, str]:
        (tmp_path / "log").unlink(missing_ok=True)
        return launcher.run(
            workplace, *words, log=tmp_path / "log", DLMEXP_DATA="tables", **environment
        )

    return run


def test_all_seven_kinds_from_a_run_to_a_claim(
    workplace: Path, command: Callable[..., tuple[int, str]]
):
    assert {path.stem for path in (workplace / "my_package").glob("*.py")} == {"__init__", *KINDS}
    words = [
        "run",
        "plugins=[my_package]",
        "experiment=waves",
        "training.binary.max_iterations=60",
        "device=cpu",
    ]
    code, said = command(*words, "workers=2")
    assert code == 0, said
    assert "18 of 18 cells done, 0 failed" in said  # 2 sizes x 3 seeds x (1 ELBO + 2 betas)
    assert re.search(r"waves +80 +8 +joint_tempered +3", said)
    record = json.loads(
        next((workplace / "results" / "records" / "waves").glob("*.json")).read_text()
    )
    assert (record["cell"]["kernel"], record["cell"]["likelihood"]) == ("rational", "cauchit")
    assert {"nll", "recalibrated_nll", "error", "brier", "ece"} == set(record["result"]["test"])

    code, said = command(
        "--plugins", "my_package", "plot", "waves", "waves-seeds", "--format", "png"
    )
    assert code == 0, said
    points = (workplace / "results" / "figures" / "waves.csv").read_text()
    assert "joint_tempered,antithetic,4" in points
    assert "missing" not in said

    _, said = command("claims", "--json", DLMEXP_PLUGINS="my_package")
    claim = next(one for one in json.loads(said) if one["number"] == 100)
    ((setting, verdict),) = claim["verdicts"].items()
    assert setting == "paper, training.max_iterations=60, beta.values=[10,1]", (
        "not the protocol as it stands"
    )
    assert verdict in ("reproduced", "partly", "not reproduced", "not tested")
    assert any(part["tests"] for part in claim["protocols"][setting]["parts"])


def test_recipes_pass_the_checks_of_plugins(command: Callable[..., tuple[int, str]]):
    code, said = command("test", "my_package")
    assert code == 0, said
    # Without records neither figures nor claim; the closed form is for Gaussian noise alone.
    assert re.search(r"\d+ checks: \d+ ok, 0 failed, 5 skipped", said)
    parts = ("kernel rational", "likelihood cauchit", "likelihood laplace", "dataset waves")
    for kind in (*parts, "estimator antithetic", "method beta_tight"):
        assert f"ok       {kind}" in said
    assert "ok       method joint_tempered: binary" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("dataset=wavs", "did you mean waves"),
        ("dataset=waves dataset.waves.likelihood=cauchy", "did you mean cauchit"),
        ("experiment=waves estimator.antithetic.weight=x", "estimator.antithetic.weight=x"),
    ],
)
def test_names_are_checked_listed_and_completed_as_ours_are(
    workplace: Path, command: Callable[..., tuple[int, str]], words, sentence
):
    code, said = command("run", "plugins=[my_package]", *words.split())
    assert (code, said.count("\n")) == (2, 1)
    assert sentence in said
    assert "waves" in command("--plugins", "my_package", "data", "list")[1]
    query = {
        "COMP_LINE": "dlmexp run dataset=wav",
        "COMP_POINT": "22",
        "DLMEXP_PLUGINS": "my_package",
    }
    command(**query, _ARGCOMPLETE="1", _ARGCOMPLETE_STDOUT_FILENAME="completed")
    assert (workplace / "completed").read_text() == "dataset=waves "


def test_entry_points_need_no_words(workplace: Path):
    """As `pip install` leaves them: the package's own list of entry points, beside the package."""
    info = workplace / "my_package-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my_package\nVersion: 1.0\n")
    groups = {"conf": "my_package.conf"} | {kind: f"my_package.{kind}" for kind in KINDS}
    lines = [f"[dlmexp.{group}]\nmy_package = {module}\n" for group, module in groups.items()]
    (info / "entry_points.txt").write_text("\n".join(lines))
    (workplace / "my_package" / "__init__.py").write_text(
        ""
    )  # nothing is imported that is not asked for
    variables = {
        "DLMEXP_DATA": "tables",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{REPOSITORY}:{workplace}",
    }

    def printed(*words: str) -> str:
        command = [sys.executable, "-m", "dlmexp", *words]
        return subprocess.run(
            command, cwd=workplace, env=variables, capture_output=True, text=True, check=True
        ).stdout

    settings = [
        "training.binary.max_iterations=20",
        "seeds=[5]",
        "device=cpu",
        "plugins=[]",
        "results=other",
    ]
    assert "6 of 6 cells done" in printed("run", "experiment=waves", *settings)
    assert "waves" in printed("plot", "--list", "--results", "nowhere")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("import not_installed_anywhere", "No module named 'not_installed_anywhere'; install it"),
        ("1 / 0", "can't be imported: ZeroDivisionError"),
        (
            "from dlmexp.plugins import OBJECTIVES\nOBJECTIVES.add('elbo', 3)",
            "there are two objectives named 'elbo'",
        ),
    ],
)
def test_a_plugin_that_is_broken_or_missing_is_one_sentence(
    here: Path, launcher: Launcher, content, sentence
):
    (here / "broken.py").write_text(content)
    for name, said in (("broken", sentence), ("nowhere", "No module named 'nowhere'; install it")):
        code, log = launcher.run(
            here, "run", f"plugins=[{name}]", "dataset=ringnorm_drawn", log=f"{name}.log"
        )
        assert (code, log.count("\n")) == (2, 1)
        assert said in log
    assert not (here / "results").exists()
