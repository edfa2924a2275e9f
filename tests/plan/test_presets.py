"""Presets: every experiment in small, under a name of its own."""

import pytest

from dlmexp import catalogue
from dlmexp.plan.checks import check
from dlmexp.plan.compose import compose, parts
from dlmexp.running.sweep import prepare_sweep

ALONE = [name for name, spec in catalogue.experiments().items() if "parts" not in spec]
SMALL = ["dataset=ringnorm_drawn", "dataset.ringnorm_drawn.options.rows=2000", "method=[elbo,joint_log_dlm]"]


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["debug", "quick"])
@pytest.mark.parametrize("experiment", ALONE)
def test_every_experiment_has_one(experiment, preset):
    cfg = compose([f"experiment={experiment}", f"preset={preset}"])
    assert cfg.name == f"{experiment}-{preset}"
    assert cfg.protocol == preset
    assert len(cfg.seeds) < 3
    for part in parts(cfg):
        check(part)
        assert {training.max_iterations for kind, training in part.training.items() if kind != "large"} <= {10, 200}


@pytest.mark.slow
def test_parts_take_the_preset():
    cfg = compose(["experiment=selection", "preset=debug"])
    assert {(part.preset, tuple(part.seeds)) for part in parts(cfg)} == {("debug", (0,))}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["paper", "released", "converged"])
def test_no_cell_of_a_preset_is_taken_for_a_protocols(protocol):
    """They are asked for under the preset's name, and trained in fewer iterations."""
    whole = prepare_sweep(compose([*SMALL, f"protocol={protocol}"]))
    for preset in ("debug", "quick"):
        sweep = prepare_sweep(compose([*SMALL, f"protocol={protocol}", f"preset={preset}"]))
        assert {some.protocol for some in sweep.candidates} == {
            preset if protocol == "paper" else f"{protocol}-{preset}"
        }
        assert not {cell.key for cell in sweep.cells} & {cell.key for cell in whole.cells}
        assert len(sweep.cells) < len(whole.cells) / 4
        assert max(cell.n for cell in sweep.cells) <= 500
