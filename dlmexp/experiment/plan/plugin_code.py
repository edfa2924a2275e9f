"""Which plugins a cell's result depends on, and in which version."""

from dlmexp.common.plugin_code import code_version
from dlmexp.core.estimators import ESTIMATORS
from dlmexp.core.gp.kernels import KERNELS
from dlmexp.core.gp.mixed_kernels import is_mixed, split_name
from dlmexp.core.likelihoods import LIKELIHOODS
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.plan.cell import Cell

# Their versions are in every record.
PACKAGES_OF_OURS = ("dlmexp", "gpytorch")


def registered_parts(cell: Cell) -> tuple[str, ...]:
    """Return the names of the parts a cell is trained with; of equal ones the plugins are equal."""
    return cell.objective, cell.likelihood, cell.estimator, cell.kernel


def plugin_packages(cell: Cell) -> list[str]:
    """Return the packages that registered the parts a cell is trained with, without our own."""
    modules = [
        OBJECTIVES.module_of(cell.objective),
        LIKELIHOODS.module_of(cell.likelihood),
        ESTIMATORS.module_of(cell.estimator),
        _module_of_kernel(cell.kernel),
    ]
    packages = {module.partition(".")[0] for module in modules if module}
    return sorted(packages.difference(PACKAGES_OF_OURS))


def _module_of_kernel(name: str) -> str | None:
    if is_mixed(name):
        name, _, _ = split_name(name)
    if "." in name:  # the path of a class
        return name.rpartition(".")[0]
    return KERNELS.module_of(name)


def plugin_versions(cell: Cell) -> str | None:
    """Return `package=version` of each plugin that a cell depends on; None if there are none."""
    versions = {package: code_version(package) for package in plugin_packages(cell)}
    words = [f"{package}={version}" for package, version in versions.items() if version]
    return " ".join(words) or None
