"""The changes that users make to methods: options of objectives, and components of mixtures."""

from collections.abc import Mapping
from typing import Any

from dlmexp.common.catalogue import entries
from dlmexp.common.errors import UserError
from dlmexp.core.estimators import ESTIMATORS, Exact, Quadrature
from dlmexp.core.objectives import OBJECTIVES
from dlmexp.experiment.config import MethodConfig, RunConfig


def changed_options(method: MethodConfig) -> dict[str, float]:
    """Return the options that differ from the defaults of the objective, sorted by name."""
    options = OBJECTIVES[method.objective].options
    changed = {}
    for name, value in sorted(method.options.items()):
        if value != options[name].default:
            changed[name] = float(value)
    return changed


def is_mixture(method: MethodConfig) -> bool:
    """Return whether q of some candidate is a mixture of several Gaussians."""
    return max(method.components) > 1


def components_of(method: MethodConfig, K: list[int] | None) -> list[int]:
    """Return the numbers of components to choose from, the smallest first.

    Args:
        method: The method.
        K: The numbers for all mixtures of a run; None: the method's own.
    """
    components = method.components
    if K is not None and is_mixture(method):
        components = K
    return sorted(set(components))


def changes_of_methods(cfg: RunConfig) -> dict[str, Any]:
    """Return the values that differ from the files of the methods, by the names of settings."""
    changes: dict[str, Any] = {}
    for name, method in cfg.method.items():
        settings_in_file = entries("method").get(name)
        for setting, value in _changed_settings(method, settings_in_file).items():
            changes[f"method.{name}.{setting}"] = value
    return changes | _changed_components(cfg)


def _changed_settings(
    method: MethodConfig, settings_in_file: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the changed settings of a method, without its components.

    Args:
        method: The method.
        settings_in_file: The settings in the file of the method; None if it has no file.
    """
    objective = OBJECTIVES[method.objective]
    changes: dict[str, Any] = {}
    options_in_file: Mapping[str, float] = {}
    # A method without a file is compared with the defaults of its objective, which has no `select`.
    if settings_in_file is not None:
        options_in_file = settings_in_file.get("options", {})
        if method.select != settings_in_file.get("select", True):
            changes["select"] = method.select
    for name, option in objective.options.items():
        value = method.options.get(name, option.default)
        if value != options_in_file.get(name, option.default):
            changes[f"options.{name}"] = int(value) if option.whole else float(value)
    return changes


def _changed_components(cfg: RunConfig) -> dict[str, Any]:
    """Return the numbers of components that differ from the files of the methods.

    They are one setting `K` if all mixtures have the same numbers; else `method.NAME.components`.
    """
    changes: dict[str, Any] = {}
    components_of_mixtures: dict[str, list[int]] = {}  # changed or not
    for name, method in cfg.method.items():
        setting = f"method.{name}.components"
        components_in_file = sorted(entries("method").get(name, {}).get("components", [1]))
        components = components_of(method, cfg.K)
        if components != components_in_file:
            changes[setting] = components
        # The file says what is a mixture: `K=[1]` may have changed it to a single Gaussian.
        if max(components_in_file) > 1:
            components_of_mixtures[setting] = components
    is_any_mixture_changed = any(setting in changes for setting in components_of_mixtures)
    distinct_components = set(map(tuple, components_of_mixtures.values()))
    if not is_any_mixture_changed or len(distinct_components) > 1:
        return changes
    K = list(distinct_components.pop())
    for setting in components_of_mixtures:
        changes.pop(setting, None)
    return {"K": K, **changes}


def check_methods(cfg: RunConfig) -> None:
    """Check the options and components of the methods.

    Raises:
        UserError: An objective does not have such options, or no mixtures.
    """
    for name, method in cfg.method.items():
        OBJECTIVES[method.objective].with_options(method.options)
        if max(components_of(method, cfg.K)) > 1:
            _check_mixture(name, method, cfg)


def _check_mixture(name: str, method: MethodConfig, cfg: RunConfig) -> None:
    """Raise UserError if a method, its estimators or `measure` can't be used with a mixture."""
    objective = OBJECTIVES[method.objective]
    if objective.mixture_loss is None or method.variant == "fixed":
        raise UserError(
            f"method {name} takes a q of one Gaussian: "
            "method=mixture_log_dlm is the one for several"
        )
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
