"""The anatomy of DLM - ELBO: contrasts within repetitions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlmexp.figures import effects
from dlmexp.figures.declared import anatomy as panel_of
from tests.figures.made_up import MadeUp

PANEL = panel_of("pol", "reg")
NLL = st.floats(-5, 5).map(lambda value: round(value, 3))


def rows(values: dict[tuple[str, str, float], list[float]]) -> MadeUp:
    about = {"dataset": "pol", "task": "regression", "role": "anatomy", "n": 2010}
    return MadeUp(
        {**about, "method": method, "parameterisation": how, "noise_floor": floor, "seed": seed, "test_nll": value}
        for (method, how, floor), several in values.items()
        for seed, value in enumerate(several)
    )


LEVELS = [
    *((method, "whitened", np.nan) for method in effects.METHODS),
    *((method, "unwhitened", np.nan) for method in ("elbo", "joint_log_dlm")),
    *((method, "whitened", 0.01) for method in ("elbo", "joint_log_dlm")),
]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(NLL, min_size=3, max_size=3), min_size=len(LEVELS), max_size=len(LEVELS)))
def test_effects_add_up_in_every_repetition(values) -> None:
    by_level = dict(zip(LEVELS, values, strict=True))
    n, found = effects.measure(PANEL, rows(by_level).table)
    assert n == 2010
    mean = {name: table["mean"].iloc[0] for name, table in found.items()}
    assert mean["whole"] == pytest.approx(mean["beta"] + mean["objective"], abs=1e-9)
    elbo, dlm = (np.mean(by_level[method, "whitened", np.nan]) for method in ("elbo", "joint_log_dlm"))
    assert mean["whole"] == pytest.approx(dlm - elbo, abs=1e-9)
    moved = np.mean(by_level["joint_log_dlm", "unwhitened", np.nan]) - np.mean(by_level["elbo", "unwhitened", np.nan])
    assert mean["coordinates"] == pytest.approx(moved - (dlm - elbo), abs=1e-9)
    marks = found["beta"].set_index("part")["mean"]
    assert marks["effect"] == pytest.approx((marks["elbo"] + marks["joint_log_dlm"]) / 2, abs=1e-9)


def test_an_effect_without_one_of_its_levels_is_left_out() -> None:
    some = {level: [1.0, 2.0] for level in LEVELS if level[0] != "fitc"}
    _, found = effects.measure(PANEL, rows(some).table)
    assert {*found} == {"whole", "beta", "objective", "coordinates", "noise"}


def test_a_closed_form_serves_for_all_coordinates() -> None:
    some = {level: [1.0] for level in LEVELS if level[1] == "whitened"}
    results = rows(some)
    results.table["form"] = "collapsed"
    _, found = effects.measure(PANEL, results.table)
    assert found["coordinates"]["mean"].iloc[0] == 0
