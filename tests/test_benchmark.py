"""The benchmarks of scripts/benchmark measure what they say; none of their times is tested."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from dlmexp.errors import UserError
from scripts.benchmark import core, gpu, models
from scripts.benchmark.agreement import agreement
from scripts.benchmark.agreement import main as compare


@pytest.mark.parametrize(("suite", "words", "says"), [
    (core, ["memory"], "peak memory"), (core, ["square", "--seconds", "0"], "twenty betas / one"),
    (models, ["memory", "--rows", "2000"], "peak memory"), (models, ["predict", "--rows", "300"], "times as fast"),
])  # fmt: skip
def test_suites_measure(suite, words, says, capsys):
    assert suite.main([*words, "--device", "cpu"]) in (0, 1)
    assert says in capsys.readouterr().out


def test_a_gpu_is_needed_for_its_suite_and_parts_are_checked(capsys):
    with pytest.raises(UserError, match="no CUDA device"):
        gpu.main(["--device", "cpu"])
    with pytest.raises(SystemExit) as stopped:
        core.main(["memroy"])
    assert stopped.value.code == 2
    assert "memroy" in capsys.readouterr().err
    assert gpu.steps_per_second(gpu.Shape(40, 5, 2, 3, 2), "cpu", 2, 0.0) > 0


def test_agreement_counts_differences_of_the_same_cells():
    one = pd.DataFrame({
        "key": ["a", "b", "c"], "status": ["done", "done", "failed"], "dataset": "banana", "n": 100, "seed": [0, 1, 2],
        "objective": "elbo", "variant": "joint", "beta": [1.0, 0.3, 2.0], "converged": [True, True, None],
        "test_nll": [0.5, 0.4, None], "test_mse": None,
    })  # fmt: skip
    other = one.assign(test_nll=[0.5, 0.45, float("nan")], key=["d", "e", "f"])
    results: Any = SimpleNamespace(cells=one, selected=one[:2])
    others: Any = SimpleNamespace(cells=other, selected=other.assign(beta=[1.0, 5.0, 2.0])[:2])
    found = {line.name: line for line in agreement(results, others)}
    assert found["cells in both"].value == 2
    assert found["test NLL identical in every bit"].value == 50
    assert found["largest difference in test NLL"].value == pytest.approx(0.05)
    assert found["same beta selected, of 2 selections"].value == 50
    assert found["beta >= 1: within 0.0001, of 1"].value == 100
    with pytest.raises(UserError, match="in common"):
        agreement(results, SimpleNamespace(cells=other.assign(dataset="ringnorm")))  # pyright: ignore
    with pytest.raises(UserError, match="two results folders"):
        compare(["one"])
