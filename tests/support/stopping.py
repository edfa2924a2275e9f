"""A request to stop that comes while a batch trains."""

from dlmexp.running.signals import StopRequest


class Late(StopRequest):
    """Asks to stop after a few looks."""

    looks = 0

    @property
    def received(self):
        self.looks += 1
        return 15 if self.looks >= 5 else None
