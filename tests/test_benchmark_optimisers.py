"""What the benchmarks of L-BFGS and of published tables compute from fits and files."""

import numpy as np
import pytest

from scripts.benchmark.lbfgs import Ends
from scripts.benchmark.table1 import METHODS, METRICS, numbers_in_print


def test_seconds_to_a_goal_are_those_of_the_steps_until_the_objective_is_there():
    ends = Ends([np.array([3.0, 2.0, 1.0]), np.array([5.0, 4.0, 3.0, 2.0, 1.0])], seconds=16.0)
    assert ends.steps == [3, 5]
    assert ends.seconds_to(np.array([2.0, 4.5])) == 4.0
    assert ends.seconds_to(np.array([0.5, 0.5])) == np.inf


def test_table_in_print_has_every_metric_of_every_method(data_root):
    path = data_root / "published" / "scores.csv"
    if not path.exists():
        pytest.skip("no published scores beside the checkout")
    printed = numbers_in_print(path)
    assert {method for method, _, _ in printed} == set(METHODS)
    assert {metric for _, _, metric in printed} == set(METRICS)
    assert printed["T-PEP 0.5", "512", "objective_per_row"] == 0.18


def test_without_the_file_there_are_no_numbers_in_print(tmp_path):
    assert numbers_in_print(tmp_path / "scores.csv") == {}
