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
from dlmexp.experiment.running.sweep import Sweep, make_split_preparer


def try_plugins(sweep: Sweep, target: Target) -> None:
    """Make a training step with each objective of a plugin, and check its result.

    Other exceptions of a plugin are ignored here: training will raise them again and record them as
    the failures of cells.

    Raises:
        UserError: An objective returns something of a wrong shape or type, or its closed form has
            another value than the objective itself.
    """
    cell_by_objective = {(cell.objective, cell.form): cell for cell in sweep.cells}
    for cell in cell_by_objective.values():
        module = OBJECTIVES.module_of(cell.objective) or ""
        if module.partition(".")[0] in PACKAGES_OF_OURS:
            continue
        try:
            _try_objective(cell, sweep, target)
        except UserError:
            raise
        except Exception as error:
            if not is_error_of_plugin(error, cell):
                raise


def _try_objective(cell: Cell, sweep: Sweep, target: Target) -> None:
    """Make a step of a cell, and compare the closed form of its objective, if any, with it."""
    prepare_split = make_split_preparer(sweep)
    # Called for the errors that a step raises. Its duration does not matter.
    step_seconds((cell,), prepare_split, target, seconds=0.0)
    if cell.form == "collapsed":
        data = batch_data((cell,), prepare_split, target)
        check_collapsed(model(cell), loss(cell), data)
