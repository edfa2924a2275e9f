"""Being asked to stop: the request is noted, and the engine leaves at the next consistent state."""

import re
import signal
import time
from types import FrameType, TracebackType

from dlmexp.errors import UserError

ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]


BUDGET_SPENT = 3  # exit code


class Stop(Exception):
    """Leave now; everything is saved. `code` is the exit code: what a shell expects after a signal, 3 for a budget."""

    def __init__(self, received: int):
        super().__init__(signal.Signals(received).name if received else "the budget's end")
        self.code = 128 + received if received else BUDGET_SPENT


class StopRequest:
    """While entered, the first signal only sets `received`; a second Ctrl-C insists, and interrupts at once, as usual.

    A budget of `seconds` asks in the same way, with 0 for the signal.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.insisted = False
        self._received: int | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in ASKING:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    @property
    def received(self) -> int | None:
        """The signal that came, 0 once the budget is spent, or None."""
        if self._received is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self._received = 0
        return self._received

    def obey(self) -> None:
        """Raise if a signal came."""
        if self.received is not None:
            raise Stop(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            self.insisted = True
            raise KeyboardInterrupt
        self._received = number


def seconds(budget: str | None) -> float | None:
    """`90s`, `25min`, `1.5h` as seconds."""
    if budget is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", budget.strip())
    if not found:
        raise UserError(f"budget={budget}: write it as 90s, 25min or 2h")
    return float(found[1]) * {"s": 1, "min": 60, "h": 3600}[found[2]]
