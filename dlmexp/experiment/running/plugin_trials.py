"""Try the objectives of plugins before a run."""

from dlmexp.common.errors import UserError
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.core.training.collapsed_check import check_collapsed
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.plan.plugin_code import PACKAGES_OF_OURS
from dlmexp.experiment.running.clock import step_seconds
from dlmexp.experiment.running.plugin_errors import is_error_of_plugin
from dlmexp.experiment.running.process import Target
from dlmexp.experiment.running.programs import batch_data, loss, model
from dlmexp.experiment.running.sweep import Sweep, prepared_splits


def try_plugins(sweep: Sweep, target: Target) -> None:
    """Make a step with each objective of a plugin, and check the result.

    Exceptions that the plugin itself raises are ignored here: they will be raised again in training
    and recorded for each cell.

    Raises:
        UserError: The objective returns something of another shape or type, or its closed form
            gives another value.
    """
    cell_by_objective = {(cell.objective, cell.form): cell for cell in sweep.cells}
    for cell in cell_by_objective.values():
        module = OBJECTIVES.module_of(cell.objective) or ""
        if module.partition(".")[0] in PACKAGES_OF_OURS:
            continue
        try:
            _try(cell, sweep, target)
        except UserError:
            raise
        except Exception as error:
            if not is_error_of_plugin(error, cell):
                raise


def _try(cell: Cell, sweep: Sweep, target: Target) -> None:
    """Make a step of a cell, and compare a closed form over q with the objective itself."""
    prepared = prepared_splits(sweep)
    step_seconds((cell,), prepared, target, seconds=0.0)  # for the step, not for its duration
    if cell.form == "collapsed":
        data = batch_data((cell,), prepared, target)
        check_collapsed(model(cell), loss(cell), data)
