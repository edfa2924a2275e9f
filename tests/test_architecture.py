"""Which package imports which: the table of docs and CONTRIBUTING, as a test. Imports inside
functions count too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dlmexp"
COMMON = {
    "common.errors": set(),
    "common.literals": {"common.errors"},
    "common.environment": set(),
    "common.paths": {"common.environment"},
    "common.extensions": {"common.environment", "common.errors", "common.paths"},
    "common.collector": set(),
    "common.processes": set(),
    "common.process_table": set(),
    "common.plugin_code": {"common.errors", "common.reading"},
    "common.plugin_errors": {"common.errors", "common.registry"},
    "common.reading": {"common.errors"},
    "common.console": {"common.errors"},
    "common.atomic": {"common.errors"},
    "common.registry": {"common.errors"},
    "common.provenance": set(),
    "common.limits": {"common.errors", "common.literals"},
    "common.catalogue": {"common.errors", "common.paths"},
}
# Mathematics: nothing here knows records, folders or Hydra.
CORE = {
    "core.gp": {"common.errors", "common.registry"},
    "core.likelihoods": {"core.gp", "common.errors", "common.registry"},
    "core.estimators": {"core.likelihoods", "core.gp", "common.errors", "common.registry"},
    "core.objectives": {
        "core.estimators",
        "core.likelihoods",
        "core.gp",
        "common.errors",
        "common.registry",
    },
    "core.training": {
        "core.folds",
        "core.objectives",
        "core.estimators",
        "core.likelihoods",
        "core.gp",
        "common.errors",
    },
    "core.baselines": set(),
    "core.folds": {"common.errors"},
    "core.device": {"common.errors"},
    "core.prediction": {"core.likelihoods", "core.gp"},
    "core.inputs": {
        "core.folds",
        "core.gp",
        "core.training",
        "core.objectives",
        "core.estimators",
        "common.errors",
    },
    "core.fit": {
        "core.folds",
        "core.inputs",
        "core.prediction",
        "core.training",
        "core.device",
        "core.likelihoods",
        "core.objectives",
        "core.estimators",
        "core.gp",
        "common.errors",
    },
    "core.cross_validation": {
        "core.fit",
        "core.inputs",
        "core.folds",
        "core.training",
        "core.objectives",
        "core.estimators",
        "common.errors",
    },
}
PLANNED = {"experiment.config", "data", *CORE, *COMMON}
EXPERIMENT = {
    "experiment.config": {"data", *COMMON},
    "experiment.plan": PLANNED
    - {"core.training", "core.fit", "core.inputs", "core.cross_validation"},
    "experiment.records": {"experiment.plan", "experiment.config", "core.folds", *COMMON},
    "experiment.models": {"experiment.records", "experiment.plan", *PLANNED},
    "experiment.running": {
        "experiment.models",
        "experiment.records",
        "experiment.plan",
        *PLANNED,
    },
    "experiment.cluster": {
        "experiment.running",
        "experiment.records",
        "experiment.plan",
        "experiment.config",
        *COMMON,
    },
}
PRESENTATION = {
    "presentation.labels": set(),
    "presentation.figures": {
        "presentation.labels",
        "presentation.claims",
        "presentation.ranking",
        "experiment.models",
        "experiment.records",
        "experiment.plan",
        "data",
        *COMMON,
    },
    "presentation.claims": {"presentation.labels", "experiment.records", "data", *COMMON},
    "presentation.anchors": {"presentation.labels", "experiment.records", *COMMON},
    "presentation.ranking": {
        "presentation.labels",
        "presentation.claims",
        "experiment.records",
        "experiment.plan",
        *COMMON,
    },
    "presentation.report": {
        "presentation.labels",
        "presentation.claims",
        "presentation.figures",
        "presentation.ranking",
        "experiment.records",
        "experiment.plan",
        *COMMON,
    },
}
MLLS = {
    "mlls": {"core.objectives", "core.estimators", "core.likelihoods", "core.gp", "common.errors"}
}
REFERENCE = {"reference": set()}
DATA = {"data": {"core.folds", *COMMON}}
ALLOWED = {**REFERENCE, **COMMON, **CORE, **DATA, **EXPERIMENT, **PRESENTATION, **MLLS}
LAYERS = ("common", "core", "experiment", "presentation")
FACES = {
    "cli",
    "api",
    "plugins",
    "plugin_checks",
    "sklearn",
    "__main__",
    "__init__",
}  # may import anything
pytestmark = pytest.mark.slow


def room(module: str) -> str:
    """Return `core.gp` for `dlmexp.core.gp.kernels`, and `data` for `dlmexp.data.splits`."""
    parts = module.split(".")[1:]
    depth = 2 if parts[0] in LAYERS else 1
    return ".".join(parts[:depth])


def module_of(path: Path) -> str:
    """Return the dotted name of a module of the package."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def rooms() -> list[str]:
    """Return all rooms of the package, without the faces that may import anything."""
    paths = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE / "conf"]
    layers = {f"{layer}.__init__" for layer in LAYERS}
    return sorted({room(module_of(path)) for path in paths} - FACES - layers)


def imported_modules(path: Path) -> set[str]:
    """Return the modules of dlmexp that a module imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.startswith("dlmexp.")}


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms from which a module imports."""
    return {room(name) for name in imported_modules(path)}


@pytest.mark.parametrize("name", rooms())
def test_packages_import_only_what_the_table_allows(name):
    place = PACKAGE / name.replace(".", "/")
    paths = [place.with_suffix(".py"), *place.rglob("*.py")]
    imported = set().union(*(imported_rooms(path) for path in paths if path.exists()))
    assert imported - {"__version__", name} <= ALLOWED[name]


@pytest.mark.processes
def test_what_needs_no_torch_does_not_load_it():
    rooms = (
        "api",
        "cli",
        "presentation.figures.plot",
        "presentation.claims.judge",
        "experiment.cluster.status",
        "presentation.report.page",
        "experiment.records.results",
    )
    modules = ", ".join(f"dlmexp.{name}" for name in rooms)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0


@pytest.mark.processes
def test_loaders_do_not_load_what_takes_seconds():
    """Every run imports all of them."""
    code = (
        "import sys; from dlmexp.data.dataset import LOADERS; LOADERS.names();"
        "sys.exit('scipy.stats' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0
