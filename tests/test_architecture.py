"""Which package imports which: the table of docs and CONTRIBUTING, as a test. Imports inside functions count too."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dlmexp"
BASIS = {"errors", "paths", "config", "registry", "catalogue", "console", "atomic", "reading", "labels", "literals"}
BASIS |= {"provenance"}
ALLOWED = {
    "errors": set(),
    "paths": {"errors"},
    "reading": {"errors"},
    "config": {"errors", "literals"},
    "console": {"errors"},
    "atomic": {"errors"},
    "registry": {"errors"},
    "labels": set(),
    "literals": {"errors"},
    "provenance": set(),
    "catalogue": {"config", "errors", "paths"},
    "gp": {"errors", "registry"},
    "data": BASIS,
    "estimators": {"gp", "errors", "registry"},
    "objectives": {"estimators", "gp", "errors", "registry"},
    "training": {"objectives", "estimators", "gp", "errors"},
    "mlls": {"estimators", "gp", "errors"},
    "plan": {"data", "objectives", "estimators", "gp", *BASIS},
    "records": {"plan", *BASIS},
    "models": {"records", "plan", "training", "objectives", "estimators", "gp", "data", *BASIS},
    "running": {"models", "records", "plan", "training", "objectives", "estimators", "gp", "data", *BASIS},
    "cluster": {"running", "records", "plan", *BASIS},
    "figures": {"models", "records", "plan", "data", *BASIS},
    "claims": {"records", *BASIS},
    "report": {"claims", "figures", "records", "plan", *BASIS},
}
pytestmark = pytest.mark.slow
ANYTHING = {"cli", "api", "sklearn", "__main__", "__init__"}
ROOMS = sorted({path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")} - ANYTHING)


def imported_rooms(path: Path) -> set[str]:
    """The packages and modules directly below `dlmexp` from which a module imports, also inside functions."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{name}" for name in names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("dlmexp.")}
    return rooms


@pytest.mark.parametrize("room", ROOMS)
def test_packages_import_only_what_the_table_allows(room):
    paths = [PACKAGE / f"{room}.py", *(PACKAGE / room).rglob("*.py")]
    imported = set().union(*(imported_rooms(path) for path in paths if path.exists()))
    assert imported - {"__version__", room} <= ALLOWED[room]


@pytest.mark.processes
def test_what_needs_no_torch_does_not_load_it():
    rooms = ("api", "cli", "figures.plot", "claims.judge", "cluster.status", "report.page", "records.results")
    modules = ", ".join(f"dlmexp.{name}" for name in rooms)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0
