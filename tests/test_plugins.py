"""`dlmexp.plugins`, from which authors of plugins import."""

import ast
import re
import subprocess
import sys

import pytest

from dlmexp import plugins
from tests.conftest import REPOSITORY

OUTSIDE = {"numpy", "torch", "math", "dataclasses", "my_package"}


def imports_of_recipes() -> set[str]:
    """Return the modules that the Python blocks of docs/PLUGINS.md import."""
    text = (REPOSITORY / "docs" / "PLUGINS.md").read_text()
    modules = set()
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                modules.add(str(node.module))
    return modules


@pytest.mark.parametrize("name", plugins.__all__)
def test_every_name_leads_to_its_object(name):
    assert getattr(plugins, name) is not None


def test_names_are_listed_once_and_have_a_home():
    assert list(plugins.MODULE_OF) == plugins.__all__
    assert dir(plugins) == sorted(plugins.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"'dlmexp\.plugins' has no attribute 'Objectiv'"):
        plugins.Objectiv  # noqa: B018


def test_the_recipes_import_from_it_alone():
    assert imports_of_recipes() - OUTSIDE == {"dlmexp.plugins"}


@pytest.mark.processes
def test_figures_and_claims_do_not_load_torch():
    code = (
        "import sys;"
        "from dlmexp.plugins import FIGURES, Figure, Line, Panel, CLAIMS, claim, BETTER;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0
