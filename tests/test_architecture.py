"""Which package imports which: the table of docs and CONTRIBUTING, as a test. Imports inside functions count too."""

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dlmexp"
BASIS = {
    "errors", "paths", "config", "registry", "catalogue", "console", "atomic", "reading", "labels", "__init__",
}  # fmt: skip
ALLOWED = {
    "errors": set(),
    "paths": {"errors"},
    "reading": {"errors"},
    "config": {"errors"},
    "console": {"errors"},
    "atomic": {"errors"},
    "registry": {"errors"},
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
ANYTHING = {"cli", "api", "sklearn", "__main__"}


@cache
def imports() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports, as dotted names below `dlmexp`."""
    modules = {path: ".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py")}
    names = {name.removesuffix(".__init__"): name for name in modules.values()}
    found: dict[str, set[str]] = {}
    for path, module in modules.items():
        found[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                # `from package import module` names a module, or something in the package itself.
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            for target in targets:
                if not target.startswith("dlmexp"):
                    continue
                below = target.removeprefix("dlmexp").removeprefix(".")
                while below and below not in names:
                    below = below.rpartition(".")[0]
                found[module].add(names.get(below, "__init__"))
    return found


def room(module: str) -> str:
    return module.partition(".")[0]


def test_packages_import_only_what_the_table_allows():
    wrong = [
        f"{module} imports {target}"
        for module, targets in imports().items()
        if room(module) not in ANYTHING | {"__init__"}
        for target in targets
        if room(target) not in ALLOWED[room(module)] | {room(module), "__init__"}
    ]
    assert not wrong


# What decodes bytes from outside, as a pattern, and who may use it besides `reading`: those that write such files, or
# only hash. What our own processes print to one another is not from outside.
IMPORT, OF = r"^ *(?:import|from) ", r"\b(?:json|np|yaml|pickle|torch|pd|csv|pa|pq|parquet|feather)\."
READS = "loadtxt|read_csv|loadmat|genfromtxt|fromfile|open_csv|read_parquet|read_feather|read_table|open_file"
DECODERS = {
    rf"{IMPORT}(?:bz2|gzip|lzma|zipfile|urllib|http|requests|pickle|tarfile|scipy\.io|ssl)\b": set(),
    rf"{IMPORT}zlib\b": {"records.packed"},
    rf"{IMPORT}pooch\b": {"data.raw_files"},
    rf"{IMPORT}socket\b": {"atomic", "records.record", "running.leases"},
    rf"{OF}(?:loads|{READS}|open_stream|input_stream|memory_map)\(": set(),
    rf"{OF}load\(": {"catalogue", "models.export"},  # the latter in a script that it writes
    rf"{OF}ParquetFile\(": {"records.packed"},
    r"msgspec\.json\.decode\b": set(),
    r"\bConsole\(": {"console"},  # of all that is printed past its consoles, escape sequences are made harmless
}


@pytest.mark.parametrize("pattern", DECODERS)
def test_only_the_front_door_decodes_what_comes_from_outside(pattern):
    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    users = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path, text in texts.items()
        if re.search(pattern, text, re.MULTILINE)
    }
    assert {module for module in users if room(module) != "reading"} <= DECODERS[pattern]


def test_no_cycle_of_modules():
    # A package's __init__ imports its modules, which may import others of the package: that is one unit to Python too.
    graph = {
        module: {target for target in targets if not target.endswith("__init__") and target != module}
        for module, targets in imports().items()
        if not module.endswith("__init__")
    }
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


@pytest.mark.processes
def test_what_needs_no_torch_does_not_load_it():
    rooms = ("api", "cli", "figures.plot", "claims.judge", "cluster.status", "report.page", "records.results")
    modules = ", ".join(f"dlmexp.{name}" for name in rooms)
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0
