"""Writes files in the order they are given; beside training where a GPU does the training."""

import queue
import threading
from collections.abc import Callable

from dlmexp.running.signals import Stop

Job = Callable[[], object]


class Writer:
    """Does jobs one after the other: at once, or with `beside` in a thread of its own.

    What a job raises (a full disk, say) is raised again by the next call here; jobs after it are not done. Leaving the
    context raises it also in place of `Stop`, which says that all is saved; another error goes first."""

    def __init__(self, beside: bool):
        self._jobs: queue.Queue[Job | None] = queue.Queue(maxsize=10_000)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True) if beside else None

    def __enter__(self) -> "Writer":
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        if kind is None or issubclass(kind, Stop):
            self._raise()

    def do(self, job: Job) -> None:
        """Do this after all that was given before."""
        if self._thread is None:
            job()
        else:
            self._raise()
            self._jobs.put(job)

    def wait(self) -> None:
        """Until all that was given is done."""
        self._jobs.join()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                if self._failure is None:
                    job()
            except BaseException as error:  # it belongs to the thread that trains
                self._failure = error
            finally:
                self._jobs.task_done()
