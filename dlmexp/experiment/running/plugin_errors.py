"""Distinguish exceptions of plugins, which fail their cells, from those that end a run."""

from dlmexp.common.plugin_errors import line_of_plugin
from dlmexp.experiment.plan.cell import Cell
from dlmexp.experiment.plan.plugin_code import plugin_packages
from dlmexp.experiment.running.process import Stop, is_out_of_memory


def is_error_of_plugin(error: Exception, cell: Cell) -> bool:
    """Return whether an exception in the training of a cell is attributed to a plugin.

    Errors that any cell can meet are not attributed to one: lack of memory, a missing file, a
    request to stop.
    """
    if isinstance(error, Stop) or is_out_of_memory(error):
        return False
    if isinstance(error, OSError):  # the file may be the plugin's own or ours
        return line_of_plugin(error) is not None
    return bool(plugin_packages(cell))
