"""Requests to stop, by a signal, a spent budget or a failure: noted first, acted on once the state is saved."""

import signal
import threading
import time
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2)
FAILURE = 1  # exit codes
BUDGET_SPENT = 3
STOPPED = 128  # from here on: this, plus the signal that asked the process to stop
SIGPIPE = 13  # whoever reads the output has gone


class Stop(Exception):
    """Ends a run whose state is saved, for this reason and with this exit code."""

    def __init__(self, reason: str, code: int):
        super().__init__(reason)
        self.code = code


class StopRequest:
    """In its context, a signal only sets `stop`. A second Ctrl-C raises `KeyboardInterrupt` at once, further ones do
    nothing: a process that leaves is not interrupted again.

    `stop` is set too when `seconds` have passed since the creation. Outside the main thread no signal is noted, since
    Python calls handlers in the main thread only.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.interrupted_twice = False
        self._stop: Stop | None = None
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
    def stop(self) -> Stop | None:
        """What has been asked for first; a failure replaces it."""
        if self._stop is None and self._deadline is not None and time.monotonic() >= self._deadline:
            self._stop = Stop("the budget's end", BUDGET_SPENT)
        return self._stop

    def request(self, number: int) -> None:
        """Ask to stop as that signal would."""
        self._stop = self._stop or Stop(signal.Signals(number).name, STOPPED + number)

    def fail(self, failure: BaseException) -> None:
        """Ask to stop because of this. May be called in another thread."""
        self._stop = Stop(str(failure), FAILURE)

    def raise_if_requested(self) -> None:
        if self.stop is not None:
            raise self.stop

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._stop is None or number != signal.SIGINT:
            self.request(number)
        elif not self.interrupted_twice:
            self.interrupted_twice = True
            raise KeyboardInterrupt
