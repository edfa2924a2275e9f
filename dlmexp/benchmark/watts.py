"""The power that a GPU draws while something is measured, from NVIDIA's tools where they are installed."""

import shutil
import subprocess
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

EVERY_SECONDS = 0.2


class Watts:
    """In its context a thread reads the power draw again and again; afterwards `mean` is known, None if it can't be."""

    def __init__(self, read: Callable[[], float] | None):
        self._read = read
        self._seen: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Watts":
        if self._read is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._read is not None:
            self._thread.join()

    @property
    def mean(self) -> float | None:
        return sum(self._seen) / len(self._seen) if self._seen else None

    def __str__(self) -> str:
        return "-" if self.mean is None else f"{self.mean:.0f}"

    def _follow(self) -> None:
        assert self._read is not None
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self._seen.append(self._read())
            except Exception:  # whatever the tool says: there is nothing to read
                return


def watts_of(device: str) -> Watts:
    """Of the current GPU; of a CPU nothing is known."""
    return Watts(_reader() if device == "cuda" else None)


def _reader() -> Callable[[], float] | None:
    import torch

    name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
    if find_spec("pynvml") is not None:
        return lambda: torch.cuda.power_draw() / 1000
    program: Any = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, "--query-gpu=power.draw", "--format=csv,noheader,nounits", "-i", name]
    return lambda: float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout)
