"""Worker threads in which tenants take turns, and that tell for how long they have been busy."""

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

LARGE = 100 * 1024

_DEEPEST = 6


class Threads(ThreadPoolExecutor):
    """An executor that knows when each of its threads began what it does now."""

    def __init__(self, name: str, count: int = 1, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(max_workers=count, thread_name_prefix=f"penstock-{name}")
        self._clock = clock
        self._began: dict[int, float] = {}

    def submit(
        self, fn: Callable[Given, Result], /, *arguments: Given.args, **options: Given.kwargs
    ) -> "Future[Result]":
        return super().submit(self._timed, fn, *arguments, **options)

    def _timed(self, job: Callable[..., Result], /, *arguments: Any, **options: Any) -> Result:
        thread = threading.get_ident()
        self._began[thread] = self._clock()
        try:
            return job(*arguments, **options)
        finally:
            del self._began[thread]

    @property
    def began(self) -> float | None:
        """When the oldest job that is under way began, by the clock; None for none. Jobs that wait do not count."""
        return min(list(self._began.values()), default=None)

    def busy(self) -> float:
        began = self.began
        return 0.0 if began is None else self._clock() - began

    def places(self) -> list[str]:
        """Return the stack of the oldest job, the innermost frame last; without any content."""
        began = list(self._began.items())
        frame = sys._current_frames().get(min(began, key=lambda each: each[1])[0]) if began else None
        stack = () if frame is None else traceback.extract_stack(frame, limit=_DEEPEST)
        return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in stack]


class FairThreads(Threads):
    """An executor in which tenants take turns: many jobs of one of them make no other one wait for more than one."""

    def __init__(self, name: str, count: int = 1, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(name, count, clock=clock)
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        """By tenant, the one whose turn it is first."""

    def submit_for(self, tenant: str, job: Callable[[], Result]) -> "Future[Result]":
        made: Future[Result] = Future()
        with self._lock:
            self._waiting.setdefault(tenant, deque()).append((made, job))
        self.submit(self._next)
        return made

    def _next(self) -> None:
        with self._lock:
            tenant = next(iter(self._waiting))
            jobs = self._waiting.pop(tenant)
            future, job = jobs.popleft()
            if jobs:
                self._waiting[tenant] = jobs  # behind all others
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = job()
        except BaseException as error:  # whoever waits for the job hears of it
            future.set_exception(error)
        else:
            future.set_result(result)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait, cancel_futures=cancel_futures)
        with self._lock:
            waiting = [made for jobs in self._waiting.values() for made, _ in jobs] if cancel_futures else []
        for made in waiting:
            made.cancel()


class Lanes:
    """Two executors, one of them for large jobs: a small job never waits behind a large one."""

    def __init__(self, name: str) -> None:
        self.threads = FairThreads(name), FairThreads(f"{name}-large")
        """For small jobs, and for large ones."""

    def submit(self, tenant: str, size: int, job: Callable[[], Result]) -> "Future[Result]":
        return self.threads[size > LARGE].submit_for(tenant, job)

    def close(self) -> None:
        for each in self.threads:
            each.shutdown(wait=False, cancel_futures=True)
