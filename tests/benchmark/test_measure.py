"""Measurements with limits, times and peak memory."""

from time import sleep

import torch

from dlmexp.benchmark.measure import Measurement, fastest, peak_bytes


def test_fastest_takes_the_minimum_of_each_case():
    naps = iter([0.0] * 3 + [0.03, 0.002, 0.03] + [0.03] * 100)
    best = fastest({"uneven": lambda: sleep(next(naps)), "long": lambda: sleep(0.05)}, 0.0)
    assert 0.002 <= best["uneven"] < 0.03
    assert best["long"] >= 0.05


def test_peak_bytes_counts_what_is_held_at_once():
    def f():
        for _ in range(5):
            a = torch.zeros(1000, dtype=torch.float64)
            b = a + 1
            del a, b

    assert 16_000 <= peak_bytes(f) < 16_100  # two arrays, and a scalar or two


def test_limits_that_are_not_met_are_marked():
    assert "NOT MET" in str(Measurement("speed", 3.0, "x", 4.0, at_least=True))
    assert "NOT MET" in str(Measurement("time", 5.0, "ms", 4.0))
    assert Measurement("time", 3.0, "ms", 4.0).meets_limit
    assert Measurement("time", 3.0, "ms").meets_limit
