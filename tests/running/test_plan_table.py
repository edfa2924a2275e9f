"""What `plan=true` says about cells that other protocols ask for as well."""

import pytest

from dlmexp.cli import main

WORDS = [
    "dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=200", "method=[elbo]", "sizes=[40]", "seeds=[0]",
    "parameterisation=[whitened]", "plan=true", "device=cpu",
]  # fmt: skip
AS_PAPER = ["lr=0.1", "lengthscale=1", "outputscale=1"]  # what `released` has otherwise on binary data


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ["none of them belongs to protocol converged or released"]),
        (AS_PAPER, ["1 cell of them also belong to protocol released"]),
        (
            [*AS_PAPER, "protocol=released", "max_iterations=300"],  # `converged` has no room for its decay
            ["1 cell of them also belong to protocol paper"],
        ),
    ],
)
def test_in_a_fresh_folder_the_cells_shared_with_each_protocol_are_counted(words, said, tmp_path, capsys):
    assert main(["run", *WORDS, *words, f"results={tmp_path}"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "belong" in line] == said


def test_large_plans_are_not_made_again_for_other_protocols(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("dlmexp.running.plan_table.MOST_COMPARED", 0)
    assert main(["run", *WORDS, f"results={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "belong" not in said
    assert "of plans with at most 0 cells, all that other protocols share is counted" in said
