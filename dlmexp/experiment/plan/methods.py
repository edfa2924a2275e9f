"""What users change of a method: options of its objective, and the components of a mixture."""

from collections.abc import Mapping
from typing import Any

from dlmexp.common.catalogue import entries
from dlmexp.common.errors import UserError
from dlmexp.core.estimators import ESTIMATORS, Exact, Quadrature
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.config import MethodConfig, RunConfig


def changed_options(method: MethodConfig) -> dict[str, float]:
    """Return the options that differ from the defaults of the objective, sorted by name."""
    known = OBJECTIVES[method.objective].options
    changed = {}
    for name, value in sorted(method.options.items()):
        if value != known[name].default:
            changed[name] = float(value)
    return changed


def is_mixture(method: MethodConfig) -> bool:
    """Return whether some candidate has a q of several Gaussians."""
    return max(method.components) > 1


def components_of(method: MethodConfig, K: list[int] | None) -> list[int]:
    """Return the numbers of components to choose from, the smallest first.

    Args:
        method: The method.
        K: The numbers for all mixtures of a run; None: the method's own.
    """
    wanted = K if K is not None and is_mixture(method) else method.components
    return sorted(set(wanted))


def changes_of_methods(cfg: RunConfig) -> dict[str, Any]:
    """Return what differs from the files of the methods, by the names of settings."""
    changes: dict[str, Any] = {}
    for name, method in cfg.method.items():
        for setting, value in _changes(method, entries("method").get(name)).items():
            changes[f"method.{name}.{setting}"] = value
    return changes | _changed_components(cfg)


def _changes(method: MethodConfig, file: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the changed settings of a method, without its components."""
    objective = OBJECTIVES[method.objective]
    usual = dict((file or {}).get("options", {}))
    changes: dict[str, Any] = {}
    if file is not None and method.select != file.get("select", True):
        changes["select"] = method.select
    for name, option in objective.options.items():
        value = method.options.get(name, option.default)
        if value != usual.get(name, option.default):
            changes[f"options.{name}"] = int(value) if option.whole else float(value)
    return changes


def _changed_components(cfg: RunConfig) -> dict[str, Any]:
    """Return `K` where all mixtures have the same other components, else those of each method."""
    changes: dict[str, Any] = {}
    of_mixtures: dict[str, list[int]] = {}
    for name, method in cfg.method.items():
        usual = sorted(entries("method").get(name, {}).get("components", [1]))
        components = components_of(method, cfg.K)
        if components != usual:
            changes[f"method.{name}.components"] = components
        if max(usual) > 1:
            of_mixtures[f"method.{name}.components"] = components
    distinct = {tuple(components) for components in of_mixtures.values()}
    if len(distinct) == 1 and of_mixtures.keys() & changes.keys():
        rest = {name: value for name, value in changes.items() if name not in of_mixtures}
        return {"K": list(distinct.pop()), **rest}
    return changes


def check_methods(cfg: RunConfig) -> None:
    """Check options and components of the methods.

    Raises:
        UserError: An objective does not take them.
    """
    for name, method in cfg.method.items():
        OBJECTIVES[method.objective].with_options(method.options)
        if max(components_of(method, cfg.K)) > 1:
            _check_mixture(name, method, cfg)


def _check_mixture(name: str, method: MethodConfig, cfg: RunConfig) -> None:
    """Refuse a mixture where q is a single Gaussian, or is not averaged exactly."""
    objective = OBJECTIVES[method.objective]
    if objective.mixture_loss is None or method.variant == "fixed":
        takes = f"method {name} takes a q of one Gaussian"
        raise UserError(f"{takes}: method=mixture_log_dlm is the one for several")
    if cfg.measure == "gradient":
        raise UserError(f"measure=gradient is for a q of one Gaussian: leave method {name} out")
    if not objective.takes_estimator:
        return
    for estimator in cfg.estimator:
        if not issubclass(ESTIMATORS[estimator], Exact | Quadrature):
            raise UserError(
                f"estimator={estimator}: it draws samples, and method {name} takes exact or "
                "quadrature; leave one of them out"
            )
