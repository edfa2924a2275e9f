"""Requests to stop, by a signal or a spent budget: noted when they come, acted on once the state has been saved."""

import signal
import time
from types import FrameType, TracebackType

STOP_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]
BUDGET_SPENT = 3  # exit code
STOPPED = 128  # exit codes from here on: this, plus the signal that asked the process to stop


class Stop(Exception):
    """Raised to end a run whose state is saved. `code` is the exit code: 128 + signal, or 3 for a spent budget."""

    def __init__(self, received: int):
        super().__init__(signal.Signals(received).name if received else "the budget's end")
        self.code = STOPPED + received if received else BUDGET_SPENT


class StopRequest:
    """In its context, a signal only sets `received`; a second Ctrl-C raises `KeyboardInterrupt` at once.

    When `seconds` have passed since its creation, `received` becomes 0.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.interrupted_twice = False
        self._received: int | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in STOP_SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    @property
    def received(self) -> int | None:
        """The number of the first signal, 0 if the budget was spent before one came, or None."""
        if self._received is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self._received = 0
        return self._received

    def raise_if_requested(self) -> None:
        """Raise `Stop` if a signal has come or the budget is spent."""
        if self.received is not None:
            raise Stop(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            self.interrupted_twice = True
            raise KeyboardInterrupt
        self._received = number
