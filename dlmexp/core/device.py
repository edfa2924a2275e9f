"""The choice of the device that trains, and its free memory."""

import torch

from dlmexp.common.errors import UserError

DEVICES = ("auto", "cpu", "cuda")


def select_device(name: str) -> torch.device:
    """Return the device that a user has named; "auto" is a GPU where there is one, else the CPU.

    Raises:
        UserError: There is no such device.
    """
    if name not in DEVICES:
        raise UserError(f"device={name}: give one of {', '.join(DEVICES)}")
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise UserError("device=cuda: there is no CUDA device here; use device=cpu or leave it out")
    return torch.device("cuda" if name != "cpu" and has_gpu else "cpu")


def free_memory(device: torch.device) -> float | None:
    """Return the free bytes of a GPU; None for the CPU."""
    return None if device.type == "cpu" else float(torch.cuda.mem_get_info(device)[0])
