"""The cores of this machine that a process may use."""

import os


def cores() -> int:
    """As many as the affinity of this process has, which `taskset` and SLURM set; all where there is no affinity."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
