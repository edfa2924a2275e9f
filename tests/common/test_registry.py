"""Registries of objects by name."""

import importlib
import sys
from types import ModuleType

import pytest

from dlmexp.common import registry as module
from dlmexp.common.errors import UserError
from dlmexp.common.plugin_code import code_version
from dlmexp.common.registry import Registry, registered_by
from dlmexp.core.objectives import OBJECTIVES


@pytest.fixture
def registry(monkeypatch):
    """A registry whose module registers `first` when it is imported."""
    monkeypatch.setattr(module, "entry_points", lambda **_: [])
    registry = Registry[object]("kernel", "a_module_of_kernels")

    def import_module(name):
        assert name == "a_module_of_kernels"
        assert "first" not in registry.names()  # a module may ask for names while it is imported
        registry.add("first", 1)

    monkeypatch.setattr(module, "import_module", import_module)
    return registry


def test_names_come_in_the_order_of_registration(registry):
    assert registry.names() == ["first"]
    registry.add("second", 2)
    assert list(registry) == ["first", "second"]


def test_object_is_found_by_its_name(registry):
    assert registry["first"] == 1
    assert "first" in registry
    assert "second" not in registry


def test_unknown_name_is_an_error_that_names_the_closest(registry):
    with pytest.raises(UserError, match=r"there is no kernel 'frist': did you mean first\?"):
        registry["frist"]


def test_second_object_of_a_name_is_refused(registry):
    kernel = object()
    assert registry.add("mine", kernel) is kernel
    assert registry.add("mine", kernel) is kernel
    with pytest.raises(UserError, match="there are two kernels named 'mine'"):
        registry.add("mine", object())


def test_decorated_class_has_its_name_as_attribute(registry):
    @registry.register("mine")
    class Kernel:
        name: str

    assert Kernel.name == "mine"
    assert registry["mine"] is Kernel


def test_entry_points_of_the_kind_are_loaded(registry, monkeypatch):
    class EntryPoint:
        def load(self):
            registry.add("of a plugin", 3)

    groups = []

    def entry_points(group):
        groups.append(group)
        return [EntryPoint()]

    monkeypatch.setattr(module, "entry_points", entry_points)
    assert registry["of a plugin"] == 3
    assert registry.names() == ["first", "of a plugin"], "those of this package come first"
    assert groups == ["dlmexp.kernels"]


def test_real_modules_register_by_being_imported(monkeypatch):
    imported = ModuleType("a_module_of_things")
    monkeypatch.setitem(sys.modules, "a_module_of_things", imported)
    assert Registry[object]("thing", "a_module_of_things").names() == []


SOURCE = """
from dlmexp.common.registry import Registry
THINGS = Registry("thing of a test")

@THINGS.register("a class")
class A: ...

THINGS.add("an object", 1)

def later():
    THINGS.add("later", 2)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "plugin_of_a_test.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("plugin_of_a_test")
    del sys.modules["plugin_of_a_test"]


@pytest.mark.parametrize("name", ["a class", "an object", "later"])
def test_registry_knows_the_module_that_registered_an_object(plugin, name):
    plugin.later()
    assert plugin.THINGS.module_of(name) == "plugin_of_a_test"
    assert plugin.THINGS.module_of("another") is None
    assert name in registered_by("plugin_of_a_test")["thing of a test"]


def test_own_objects_are_of_our_modules():
    """Also when a test asks for them first: the module that is imported counts."""
    assert OBJECTIVES.module_of("elbo") == "dlmexp.core.objectives.elbo"
    assert "elbo" in registered_by("dlmexp.core")["objective"]
    assert "objective" not in registered_by("dlmexp.core.obj")


def test_version_of_a_plugin_is_that_of_its_files(plugin, tmp_path):
    before = code_version("plugin_of_a_test")
    (tmp_path / "plugin_of_a_test.py").write_text(SOURCE + "# edited")
    code_version.cache_clear()
    assert before != code_version("plugin_of_a_test")
    (tmp_path / "plugin_of_a_test.py").write_text(SOURCE)
    code_version.cache_clear()
    assert before == code_version("plugin_of_a_test")
