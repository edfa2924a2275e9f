"""Settings as data: whatever is changed shows, nothing else does, and what is shown gives the same setting again."""

from functools import cache

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.config import literal
from dlmexp.plan.compose import compose
from dlmexp.plan.overrides import spelled_out
from tests.support.cells import planned

SMALL = ["seeds=[0]", "sizes=[50]", "method=[elbo,joint_log_dlm]"]
PROTOCOLS = ("paper", "released", "annealed")
CHANGES = {  # another value than the protocol's, by setting, or one for each protocol; of training, those for cadata
    "training.lr": 0.07, "training.epsilon": 1e-5, "training.resolution": 0.5, "training.minibatch": 37,
    "training.minibatch_lr": 0.07, "training.minibatch_rows": ("afresh", "epochs", "afresh"), "training.window": 13,
    "training.tolerance": 0.01, "training.criterion": ("sum", "relative", "mean"), "training.max_iterations": 27_000,
    "training.epochs": 3, "training.inducing": ("last", "first", "last"), "training.noise_floor": 0.01,
    "training.initial.noise": 0.3, "beta.first": 3.0, "beta.ratio": 3.0, "beta.smallest": 0.5,
    "beta.zero": (True, True, False), "beta.values": [0.3, 7.0], "selection": ("nll", "reported", "nll"),
    "collapsed": False, "dtype": "float32", "lengthscale": 2.0, "outputscale": 2.0, "noise": 0.4, "M": 17,
    "dataset.cadata.kernel": "matern52", "dataset.cadata.ard": True, "dataset.cadata.mean": "constant",
    "dataset.cadata.test_cap": 77, "dataset.cadata.validation": "tenth",
    "estimator.ups.sampler": "rejection", "estimator.smooth_bmc.nu": 0.5,
}  # fmt: skip


@cache
def asked(*words: str):
    return tuple(planned(*spelled_out(["dataset=cadata", *SMALL, *words])))


def _full(key: str) -> str:
    """A name in a setting as an override for cadata alone."""
    of_data = key in ("kernel", "ard", "mean", "test_cap", "validation")
    return f"dataset.cadata.{key}" if of_data else key.replace("training.", "training.regression.", 1)


def test_every_setting_that_changes_results_is_tried():
    cfg = compose(["dataset=cadata"])
    training = {f"training.{name}" for name in vars(cfg.training["regression"])}
    left = {"final_lr", "decay", "estimator_lr", "initial", "parameterisation", "by_method"}  # given in other words
    assert training - {f"training.{name}" for name in left} <= CHANGES.keys()
    assert {f"beta.{name}" for name in vars(cfg.beta) if "coarse" not in name} <= CHANGES.keys()


@pytest.mark.slow
@settings(max_examples=20)
@given(st.sampled_from(sorted(CHANGES)), st.sampled_from(PROTOCOLS))
def test_a_single_changed_setting_gives_another_setting_which_gives_itself_again(name, protocol):
    estimator = name.split(".")[1] if name.startswith("estimator.") else "exact"
    base = [f"protocol={protocol}", f"estimator=[{estimator}]"]
    value = CHANGES[name]
    value = value[PROTOCOLS.index(protocol)] if isinstance(value, tuple) else value
    before, after = asked(*base), asked(*base, f"{name}={literal(value)}")
    assert {some.setting.text for some in before} == {""}
    index = [some.method for some in before].index("joint_log_dlm")
    setting = after[index].setting
    assert setting.text != ""
    assert name != "selection" or setting.selection == value
    typed = [f"{_full(key)}={literal(value)}" for key, value in setting.changes.items()]
    again = asked(*base, *typed)
    assert [(some.setting, some.cells) for some in again] == [(some.setting, some.cells) for some in after]


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_values_are_shown_as_a_run_takes_them(value):
    assert OverridesParser.create().parse_override(f"x={literal(value)}").value() == value
    assert OverridesParser.create().parse_override(f"x={literal([value, value])}").value() == [value, value]


@pytest.mark.parametrize(
    ("words", "protocol", "roles"),
    [
        (["preset=quick"], "quick", {"fit"}),
        (["preset=quick", "protocol=released"], "released-quick", {"fit"}),
        (["evaluate=10"], "paper", {"curve"}),
        (["role=anatomy", "factors=[M]", "M=7"], "paper", {"anatomy"}),
        (["measure=gradient", "method=[fixed_log_dlm]", "estimator=[bmc]"], "paper", {"fit", "gradient"}),
    ],
)
def test_protocols_presets_and_roles(words, protocol, roles):
    candidates = asked(*words)
    assert {some.setting.protocol for some in candidates} == {protocol}
    assert {some.role for some in candidates} == roles
    assert {some.setting.text for some in candidates} == {""}, "a factor of an experiment is no change"
    assert {some.size for some in candidates} == {"50"}
