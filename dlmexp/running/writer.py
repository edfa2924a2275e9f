"""Writes files in the order they are given; beside training where a GPU does the training."""

import queue
import threading
from collections.abc import Callable

Job = Callable[[], object]


class Writer:
    """Does jobs one after the other: at once, or with `beside` in a thread of its own.

    What a job raises (a full disk, say) is raised again by the next call here; jobs after it are not done."""

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
        if kind is None:
            self._raise()

    def do(self, job: Job) -> None:
        """Do this after all that was given before."""
        if self._thread is None:
            job()
        else:
            self._raise()
            self._jobs.put(job)

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
