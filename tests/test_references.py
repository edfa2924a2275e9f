"""Docs and docstrings name files, tests, sections, settings and objects that exist."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from dlmexp.experiment.plan import overrides
from tests.conftest import REPOSITORY

PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    REPOSITORY / "data" / "README.md",
    REPOSITORY / "scripts" / "site_home.md",
    *sorted((REPOSITORY / "docs").rglob("*.md")),
]
MODULES = sorted((REPOSITORY / "dlmexp").rglob("*.py"))
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))
# Importing GPyTorch warns of what it does with torch.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
RESULTS = REPOSITORY / "results"
TOP_FOLDERS = "dlmexp|tests|scripts|docs|conf|hydra_plugins"
# A path in this repository. `[^\w/.-]` before it: `my_package/conf` is none of ours.
FILE = re.compile(rf"(?<![\w/.-])((?:{TOP_FOLDERS})/[\w./-]*\w)")
# `test_nll` and `test_recalibrated_nll` are columns of the table.
TEST = re.compile(r"(?<![\w/])(test_(?!recalibrated_)[a-z0-9]+_\w+)(?!\w|\.py|::)")
TEST_FILE = re.compile(r"\b(test_\w+\.py)")
SECTION = re.compile(r"\bsections? (\d+)\b(?!\.\d)")
OBJECT = re.compile(r"(?<![\w/.])(dlmexp(?:\.\w+)+)")
SETTING = re.compile(r"^\+{0,2}([A-Za-z_][\w.]*)=")
# The target of a link inside this repository, and the heading that it leads to.
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
# Files of users, groups of entry points (registry.py), the image of a container.
FILES_OF_USERS = {"conf/hydra/launcher/mine.yaml", "conf/dataset/NAME.yaml"}
KINDS = (
    "conf",
    "loaders",
    "kernels",
    "likelihoods",
    "objectives",
    "estimators",
    "figures",
    "panels",
    "samplers",
    "claims",
)
NOT_OBJECTS = {*(f"dlmexp.{kind}" for kind in KINDS), "dlmexp.sif"}
# Placeholders and words of other programs in commands of `dlmexp run`.
NOT_SETTINGS = {"key", "KEY", "name", "NAME"}


def docstrings(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Yield the documented modules, classes and functions of a file with their docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, documented):
            text = ast.get_docstring(node)
            if text:
                yield node, text


@cache
def prose(path: Path) -> str:
    """Return a page, or the docstrings and comments of a module."""
    text = path.read_text()
    if path.suffix != ".py":
        return text
    comments = re.findall(r"#.*$", text, re.MULTILINE)
    return "\n".join([*(docstring for _, docstring in docstrings(path)), *comments])


@cache
def names_of_tests() -> set[str]:
    """Return the names of all test functions, and of all modules with tests."""
    names = {path.stem for path in TESTS}
    for path in TESTS:
        names |= set(re.findall(r"^\s*(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE))
    return names


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of dlmexp, or something inside one."""
    parts = name.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            fields = getattr(found, "__annotations__", {})
            if not hasattr(found, part) and part not in fields:
                return False
            found = getattr(found, part, None)
        return True
    return False


def is_setting(key: str) -> bool:
    """Whether `dlmexp run key=...` means something."""
    if key.startswith("hydra") or key in overrides.GROUPS:
        return True
    (spelled,) = {
        word.lstrip("+").partition("=")[0] for word in overrides.expand_shorthand([f"{key}=1"])[-1:]
    }
    known = overrides.setting_types(spelled)
    return spelled in known or spelled in overrides.GROUPS or ".initial." in spelled


def settings_in_commands(text: str) -> Iterator[str]:
    """Yield the keys of the settings in all commands `dlmexp run` of a page."""
    for line in text.splitlines():
        for command in re.findall(r"dlmexp run ([^`\n]*)", line):
            try:
                words = shlex.split(command, comments=True)
            except ValueError:  # a quotation mark of the sentence around it
                words = command.split()
            for word in words:
                if match := SETTING.match(word):
                    yield match[1]


@pytest.mark.parametrize(
    "path", [*PAGES, *MODULES], ids=lambda path: str(path.relative_to(REPOSITORY))
)
def test_files_and_tests_that_are_named_exist(path):
    text = prose(path)
    files = set(FILE.findall(text)) - FILES_OF_USERS
    absent = {name for name in files if not (REPOSITORY / name).exists()}
    assert absent == set()
    assert set(TEST_FILE.findall(text)) <= {file.name for file in TESTS}
    assert set(TEST.findall(text)) <= names_of_tests()


@pytest.mark.parametrize(
    "path", [*PAGES, *MODULES], ids=lambda path: str(path.relative_to(REPOSITORY))
)
def test_sections_and_objects_that_are_named_exist(path):
    text = prose(path)
    headings = re.findall(
        r"^## (\d+)\.", (REPOSITORY / "docs" / "SPEC.md").read_text(), re.MULTILINE
    )
    assert set(SECTION.findall(text)) <= set(headings)
    names = set(OBJECT.findall(text)) - NOT_OBJECTS
    assert {name for name in names if not resolves(name)} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_settings_that_are_named_exist(path):
    keys = set(settings_in_commands(path.read_text())) - NOT_SETTINGS
    assert {key for key in keys if not is_setting(key)} == set()


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and MkDocs spell them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in headings)
    return {re.sub(r"\s", "-", heading) for heading in words}


@pytest.mark.parametrize(
    "path",
    [*PAGES, *sorted((REPOSITORY / "results").glob("*/*.md"))],
    ids=lambda path: str(path.relative_to(REPOSITORY)),
)
def test_links_lead_to_files_and_headings_that_exist(path):
    text = re.sub(r"`[^`\n]+`", "", path.read_text())
    for target, anchor in LINK.findall(text):
        folder = REPOSITORY if path.name == "site_home.md" else path.parent  # it becomes index.md
        goal = (folder / target).resolve() if target else path
        if RESULTS in goal.parents and not (RESULTS / "paper" / "figures").exists():
            continue  # an sdist, which has no results
        assert goal.exists(), target
        if anchor and goal.suffix == ".md":
            assert anchor in anchors(goal), f"{target}#{anchor}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_documented_arguments_and_attributes_exist(path):
    """`Args:` has parameters of the function, `Attributes:` fields of the class."""
    for node, text in docstrings(path):
        if isinstance(node, ast.FunctionDef):
            parameters = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            parameters += [extra for extra in (node.args.vararg, node.args.kwarg) if extra]
            assert documented(text, "Args") <= {parameter.arg for parameter in parameters}, (
                node.name
            )
        elif isinstance(node, ast.ClassDef):
            assert documented(text, "Attributes") <= members(node), node.name


def documented(docstring: str, section: str) -> set[str]:
    """Return the names that a section of a Google docstring describes."""
    match = re.search(rf"^{section}:\n((?:[ ]{{4}}.*\n?|\n)+)", docstring, re.MULTILINE)
    names = set()
    for line in match[1].splitlines() if match else ():
        if entry := re.match(r"    (?! )([\w*, ]+?)(?: \([^)]*\))?: ", line + " "):
            names |= {name.strip(" *") for name in entry[1].split(",")}
    return names


def members(node: ast.ClassDef) -> set[str]:
    """Return the names of the fields, attributes and methods of a class."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.AnnAssign | ast.Assign):
            targets = [inner.target] if isinstance(inner, ast.AnnAssign) else inner.targets
            names |= {ast.unparse(target).removeprefix("self.") for target in targets}
        if isinstance(inner, ast.FunctionDef):
            names |= {inner.name, *(argument.arg for argument in inner.args.args)}
    return names
