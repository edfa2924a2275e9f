"""The most memory a function holds at once beyond what was there before it, counted by torch's own allocator."""

from collections.abc import Callable
from typing import Any

import torch


def peak_bytes(f: Callable[[], object], device: str = "cpu") -> int:
    """Exact, not sampled: every allocation and release of tensors on the device is seen."""
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        f()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    # Not torch.profiler.profile, which wraps this one and from torch 2.10 on warns at its first use, in some versions.
    recorded: Any = torch.autograd.profiler.profile(profile_memory=True)
    with recorded:
        f()
    held = peak = 0
    for event in recorded.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak
