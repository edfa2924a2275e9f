"""Work whose result is needed later: on a GPU it runs beside what follows, on a CUDA stream of its own."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor


def on_side_stream(work: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
    """Begin `work` and return a function that waits for its result; on a CPU, `work` itself.

    A captured graph takes the fork and the join along. Both streams wait for each other, so neither reuses memory that
    the other still reads, provided that what `work` reads is kept until its result has been asked for."""
    if device.type != "cuda":
        return work
    main = torch.cuda.current_stream(device)
    side = _side_stream(device, main.stream_id)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        result = work()

    def wait() -> Tensor:
        main.wait_stream(side)
        return result

    return wait


@cache
def _side_stream(device: torch.device, beside: int) -> torch.cuda.Stream:
    """One for each stream that work is taken from: what is freed on a side stream may still be read on its main one."""
    return torch.cuda.Stream(device)
