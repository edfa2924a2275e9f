"""How large the pieces are that one program of a kernel works on."""
# pyright: reportMissingImports=false, reportArgumentType=false, reportReturnType=false

from functools import cache

import torch
import triton

PROGRAMS_PER_SM = 4  # fewer leave a part of the device without work


def tile(size: int) -> int:
    """A power of two that holds `size` columns and is large enough for a matrix product."""
    return max(16, triton.next_power_of_2(size))


def chunks_of_rows(N: int, step: int, programs: int, device: torch.device) -> tuple[int, int]:
    """Into how many chunks N rows are cut, so that `programs` programs for each fill the device, and rows of a chunk
    (a multiple of `step`)."""
    wanted = triton.cdiv(PROGRAMS_PER_SM * _processors(device), programs)
    rows = step * triton.cdiv(triton.cdiv(N, wanted), step)
    return triton.cdiv(N, rows), rows


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
