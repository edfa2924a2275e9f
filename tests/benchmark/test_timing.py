"""The fastest run of each, in rounds over all."""

from time import sleep

from dlmexp.benchmark.timing import fastest


def test_takes_the_minimum_of_each_case():
    naps = iter([0.0] * 3 + [0.03, 0.002, 0.03] + [0.03] * 100)
    best = fastest({"uneven": lambda: sleep(next(naps)), "long": lambda: sleep(0.05)}, 0.0)
    assert 0.002 <= best["uneven"] < 0.03
    assert best["long"] >= 0.05
