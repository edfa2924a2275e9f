"""Peak memory is what was held at once, not what was allocated in all."""

import torch

from dlmexp.benchmark.memory import peak_bytes


def test_counts_what_is_held_at_once():
    def f():
        for _ in range(5):
            a = torch.zeros(1000, dtype=torch.float64)
            b = a + 1
            del a, b

    assert 16_000 <= peak_bytes(f) < 16_100  # two arrays, and a scalar or two
