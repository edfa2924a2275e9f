"""Being asked to stop: the request is noted, and the engine leaves at the next consistent state."""

import signal
from types import FrameType, TracebackType

ASKING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR2") if hasattr(signal, name)]


class Stop(Exception):
    """Leave now; everything is saved. `code` is the exit code a shell expects after that signal."""

    def __init__(self, received: int):
        super().__init__(signal.Signals(received).name)
        self.code = 128 + received


class StopRequest:
    """While entered, the first signal only sets `received`; a second Ctrl-C interrupts at once, as usual."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopRequest":
        for number in ASKING:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def obey(self) -> None:
        """Raise if a signal came."""
        if self.received is not None:
            raise Stop(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
