"""Which package imports which: the table of docs and CONTRIBUTING, as a test. Imports inside functions count too."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "dlmexp"
BASIS = {
    "errors", "paths", "config", "registry", "catalogue", "plugins", "console", "cores", "atomic", "reading", "labels",
    "__init__",
}  # fmt: skip
ALLOWED = {
    "errors": set(),
    "paths": set(),
    "reading": {"errors"},
    "config": set(),
    "console": {"errors"},
    "cores": set(),
    "atomic": {"errors"},
    "registry": {"errors"},
    "catalogue": {"config", "errors", "paths"},
    "plugins": {"errors", "paths"},
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


@pytest.mark.slow
def test_packages_import_only_what_the_table_allows():
    wrong = [
        f"{module} imports {target}"
        for module, targets in imports().items()
        if room(module) not in ANYTHING | {"__init__"}
        for target in targets
        if room(target) not in ALLOWED[room(module)] | {room(module), "__init__"}
    ]
    assert not wrong


# What decodes bytes from outside, and who may import it besides `reading`: those that write such files, or only hash.
DECODERS = {
    "bz2": set(), "gzip": set(), "lzma": set(), "zlib": {"records.packed"}, "zipfile": set(),
    "urllib": set(), "http": set(),
    "requests": set(), "pooch": {"data.raw_files"}, "pickle": set(), "tarfile": set(), "scipy.io": set(),
    "socket": {"atomic", "records.record",
    "running.leases", "cluster.submission"}, "ssl": set(),
}  # fmt: skip
# Functions of the same kind. What our own processes print to one another is not from outside.
CALLS = {"loads": set(), "load": {"catalogue", "plan.compose"}, "loadtxt": set(), "read_csv": set(),
         "loadmat": set(), "genfromtxt": set(), "fromfile": set(), "open_csv": set(), "ParquetFile": {"records.packed"},
         "read_parquet": set(), "read_feather": set(), "read_table": set(), "open_file": set(), "open_stream": set(),
         "input_stream": set(), "memory_map": set()}  # fmt: skip


@pytest.mark.slow
def test_only_the_front_door_decodes_what_comes_from_outside():
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if room(module) == "reading":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for decoder, allowed in DECODERS.items():
                if any(name == decoder or name.startswith(f"{decoder}.") for name in names) and module not in allowed:
                    wrong.append(f"{module} imports {decoder}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                of = ast.unparse(node.func.value).partition(".")[0]
                decodes = of in ("json", "np", "yaml", "pickle", "torch", "pd", "csv", "pa", "parquet", "feather")
                if decodes and module not in CALLS[node.func.attr]:
                    wrong.append(f"{module} calls {node.func.attr}")
            if isinstance(node, ast.Attribute) and node.attr == "decode" and ast.unparse(node.value) == "msgspec.json":
                wrong.append(f"{module} calls msgspec.json.decode")
    assert not wrong


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


def test_no_cycle_of_packages():
    rooms: dict[str, set[str]] = {}
    for module, targets in imports().items():
        rooms.setdefault(room(module), set()).update(
            room(t) for t in targets if room(t) not in (room(module), "__init__")
        )
    list(TopologicalSorter(rooms).static_order())


TORCHLESS = [
    "",
    ".cli",
    ".api",
    ".figures.plot",
    ".claims.judge",
    ".cluster.status",
    ".report.page",
    ".records.results",
]


@pytest.mark.processes
@pytest.mark.parametrize("module", TORCHLESS)
def test_torch_is_not_loaded_by(module):
    code = f"import sys, dlmexp{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent).returncode == 0
