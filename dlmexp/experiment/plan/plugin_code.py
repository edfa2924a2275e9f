"""The plugins that the result of a cell depends on, and their versions."""

from dlmexp.common.plugin_code import code_version
from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.gp.kernels import KERNELS
from dlmexp.core.gp.mixed_kernels import is_mixed, kernel_parts
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.plan.cell import Cell

# Packages that define kernels, objectives, ... and are no plugins. Every record has their versions.
PACKAGES_OF_OURS = ("dlmexp", "gpytorch")


def registered_parts(cell: Cell) -> tuple[str, ...]:
    """Return the names of objective, likelihood, estimator and kernel, each perhaps of a plugin.

    Cells with equal names depend on the same plugins.
    """
    return cell.objective, cell.likelihood, cell.estimator, cell.kernel


def plugin_packages(cell: Cell) -> list[str]:
    """Return the packages of plugins that define registered parts of a cell."""
    modules = (
        OBJECTIVES.module_of(cell.objective),
        LIKELIHOODS.module_of(cell.likelihood),
        ESTIMATORS.module_of(cell.estimator),
        _module_of_kernel(cell.kernel),
    )
    packages: set[str] = set()
    for module in modules:
        if module:
            package, _, _ = module.partition(".")
            packages.add(package)
    return sorted(packages.difference(PACKAGES_OF_OURS))


def _module_of_kernel(name: str) -> str | None:
    """Return the module that defines a kernel; None if no such kernel is registered."""
    if is_mixed(name):
        name, _, _ = kernel_parts(name)
    if "." in name:  # the import path of a class
        return name.rpartition(".")[0]
    return KERNELS.module_of(name)


def plugin_versions(cell: Cell) -> str | None:
    """Return `package=version` of each plugin that a cell depends on; None if there are none."""
    versions: list[str] = []
    for package in plugin_packages(cell):
        version = code_version(package)
        if version:
            versions.append(f"{package}={version}")
    return " ".join(versions) or None
