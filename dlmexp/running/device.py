"""The device that a run trains on: which one, its number type, and free memory."""

import os
from dataclasses import dataclass

import torch

from dlmexp.config import RunConfig
from dlmexp.errors import UserError
from dlmexp.plan.checks import check_limits

# CUDA reads it when it starts: as many queues to a GPU as it can have, one for each stream. With the default of 8, what
# a batch waits for can be queued behind the steps of another.
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


@dataclass(frozen=True)
class Target:
    """The device of a run, and the type of its rows (`gp.precision`)."""

    device: torch.device
    dtype: torch.dtype

    @property
    def free_memory(self) -> float | None:
        """The free bytes of a GPU; None for the CPU."""
        return None if self.device.type == "cpu" else float(torch.cuda.mem_get_info(self.device)[0])


def select_target(device: str, dtype: str) -> Target:
    """The named device and dtype; `auto` is a GPU where there is one, else the CPU."""
    check_limits("device", device, RunConfig.__dataclass_fields__["device"].metadata)
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError(f"device={device}: there is no CUDA device here; use device=cpu or leave it out")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return Target(torch.device(device), getattr(torch, dtype))


def is_out_of_memory(error: Exception) -> bool:
    """Whether it says that memory ran out: a GPU's, NumPy's, or torch's on a CPU, which has no class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
