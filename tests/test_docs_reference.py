"""Pages of the site that are made from the program: each command and each setting is there."""

from dataclasses import fields

import pytest

from dlmexp.experiment.config import RunConfig, TrainingConfig
from scripts.docs_reference import commands_page, figures_page, settings_page
from tests.conftest import REPOSITORY


def test_every_command_has_its_help_text():
    page = commands_page()
    assert "## dlmexp predict\n" in page
    assert "### dlmexp data fetch\n" in page
    assert "--interval" in page
    assert "Direct Loss Minimization for Sparse Gaussian Processes" in page


def rows_of_settings() -> dict[str, list[str]]:
    """Return type, default and meaning of each setting."""
    rows = {}
    for line in settings_page().splitlines():
        if line.startswith("| `"):
            name, *cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            rows[name.strip("`")] = cells
    return rows


def test_every_setting_has_a_type_and_a_meaning():
    rows = rows_of_settings()
    assert {field.name for field in fields(RunConfig)} <= rows.keys()
    assert {f"training.KIND.{field.name}" for field in fields(TrainingConfig)} <= rows.keys()
    assert {name for name, cells in rows.items() if not cells[0] or not cells[-1]} == set()


def test_defaults_are_those_of_the_schema():
    rows = rows_of_settings()
    assert rows["training.KIND.max_iterations"][1] == f"`{TrainingConfig().max_iterations}`"
    assert rows["csv.missing"][1] == "`refuse`"
    assert rows["budget"][1] == "`null`"


@pytest.mark.published
def test_figures_of_the_paper_have_pictures_and_captions():
    page = figures_page()
    assert "![Test NLL against training size" in page
    assert (REPOSITORY / "results" / "paper" / "figures" / "class-log.png").is_file()
    assert "(paper/figures/class-log.png)" in page


def test_site_shows_a_list_below_a_paragraph_as_a_list():
    pytest.importorskip("mkdocs")
    from scripts import docs_hook

    page = "Text:\n- one\n  more\n- two\n\n```text\na\n- b\n```"
    shown = "Text:\n\n- one\n  more\n- two\n\n```text\na\n- b\n```"
    assert docs_hook.on_page_markdown(page) == shown
