"""Requests to stop, by a signal, a spent budget or a failure: noted first, acted on once the state is saved."""

import signal
import threading
import time
from types import FrameType

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2")
STOP_SIGNALS = [getattr(signal, name) for name in NAMES if hasattr(signal, name)]
BUDGET_SPENT = 3  # exit code
STOPPED = 128  # exit codes from here on: this, plus the signal that asked the process to stop
SIGPIPE = 13  # whoever reads the output has gone
FAILURE = -1


class Stop(Exception):
    """Raised to end a run whose state is saved. `code` is the exit code: 128 + signal, 3 for a spent budget, 1 for a
    failure."""

    def __init__(self, received: int, failure: BaseException | None = None):
        name = "the budget's end" if not received else str(failure) if failure else signal.Signals(received).name
        super().__init__(name)
        self.failed = failure is not None
        self.code = BUDGET_SPENT if not received else 1 if failure else STOPPED + received


class StopRequest:
    """In its context, a signal only sets `received`. A second Ctrl-C raises `KeyboardInterrupt` at once, further ones
    do nothing: a process that leaves is not interrupted again.

    When `seconds` have passed since its creation, `received` becomes 0. Outside the main thread no signal is noted,
    since Python calls handlers in the main thread only.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.interrupted_twice = False
        self.failure: BaseException | None = None
        self._received: int | None = None
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup does
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            if not (self.interrupted_twice and number == signal.SIGINT):
                signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    @property
    def received(self) -> int | None:
        """The number of the first signal, 0 if the budget was spent before, -1 after a failure, or None."""
        if self._received is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self._received = 0
        return self._received

    def request(self, number: int) -> None:
        """Ask to stop as that signal would."""
        self._received = number if self._received is None else self._received

    def fail(self, failure: BaseException) -> None:
        """Ask to stop because of this. May be called in another thread."""
        self.failure, self._received = failure, FAILURE

    def raise_if_requested(self) -> None:
        """Raise `Stop` if a signal has come, the budget is spent, or something has failed."""
        if self.received is not None:
            raise Stop(self.received, self.failure)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None and number == signal.SIGINT:
            if self.interrupted_twice:
                return
            self.interrupted_twice = True
            raise KeyboardInterrupt
        self.request(number)
