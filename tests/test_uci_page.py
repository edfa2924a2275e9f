"""The page of results/uci has the tables that its command makes."""

import re

import pytest

from scripts.uci_page import PART, boards, tables
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.published
FOLDER = REPOSITORY / "results" / "uci"


@pytest.fixture(scope="module")
def page() -> str:
    return (FOLDER / "README.md").read_text(encoding="utf-8")


def test_tables_of_the_page_are_made_from_the_records(page: str) -> None:
    part = PART.search(page)
    assert part is not None
    assert part[2].strip() == "\n".join(tables(str(FOLDER))).strip()


def test_page_says_on_how_many_data_sets_methods_are_ahead_of_elbo(page: str) -> None:
    ahead = {}
    for metric in ("nll", "rmse"):
        for method in boards(str(FOLDER), metric)["regression"]["methods"]:
            if method["method"] != "elbo":
                signs = [data_set["difference"] > 0 for data_set in method["by_data_set"]]
                ahead[method["method"], metric] = (sum(signs), len(signs))
    assert ahead["power_ep", "nll"] == ahead["t_pep", "nll"] == (13, 14)
    assert ahead["fitc", "nll"] == (14 - 8, 14)
    assert ahead["joint_log_dlm", "nll"] == (7, 14)
    assert ahead["mixture_log_dlm", "nll"] == (9, 14)
    assert ahead["joint_log_dlm", "rmse"] == ahead["mixture_log_dlm", "rmse"] == (3, 14)


def test_page_has_at_most_600_words_beside_tables(page: str) -> None:
    prose = re.sub(r"\n(\||    ).*|<!--.*?-->", "", page)
    assert len(re.findall(r"\S*\w\S*", prose)) <= 600
