"""The time that a request's own work takes: its CPU, in the event loop and in threads, and its waiting for others.

A busy machine takes wall time from a request without any work being done for it. Measured by wall time, a step would
be late in one request and in time in the next one, so that the prompt would flip between two forms.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

_LONGEST = 4
"""Seconds of wall time for each second of work, after which it is late on a busy machine, too."""
_LEAST = 0.01
"""Seconds between two looks at the time that is used."""
_TURN = 0.01
"""Seconds for which work has the event loop before it lets others run."""
_cpu_clock = getattr(time, "pthread_getcpuclockid", lambda _: time.CLOCK_MONOTONIC)  # macOS has none


class WorkTime:
    """The seconds that one request has used so far. For use on one event loop."""

    def __init__(self) -> None:
        self._used = 0.0
        self._cpu: float | None = None
        """The loop thread's CPU seconds when the work went on; None while it waits."""
        self._waits: float | None = None
        """The time since when it waits for what is no job of a thread."""
        self._done: list[float] = []
        """The seconds of finished jobs; threads append to it."""
        self._jobs = 0
        """Jobs in threads that are waited for."""
        self._running: dict[object, tuple[int, float]] = {}
        """The CPU clock of each thread that does a job, and its time at the beginning."""
        self._turn = time.perf_counter()
        """The time since when others have not used the event loop, as far as `let_others_run` knows."""

    def used(self) -> float:
        """Return the seconds of CPU, and of waiting for others."""
        used = self._used + sum(self._done)
        if self._running:
            used += sum(time.clock_gettime(clock) - began for clock, began in [*self._running.values()])
        if self._cpu is not None:
            used += time.thread_time() - self._cpu
        return used if self._waits is None else used + time.monotonic() - self._waits

    async def let_others_run(self) -> None:
        """Let others use the event loop between the pieces of long work, if it has had the loop for long."""
        if time.perf_counter() - self._turn > _TURN:
            await asyncio.sleep(0)
            self._turn = time.perf_counter()

    def __enter__(self) -> None:
        """Count the CPU of the loop's thread from now on, but for what `finish` waits for."""
        self.go_on()

    def __exit__(self, *raised: object) -> None:
        self.pause()
        self._waits = None

    async def finish(
        self, work: Coroutine[Any, Any, Result], awaited: Any, seconds: float, until: float, patience: float
    ) -> Result:
        """Return the result of work that has begun within `with`, and that waits for `awaited`.

        Raise `TimeoutError` as `limit` does, after `seconds` of its own, or once `until` seconds are used in all.
        """
        self.pause()
        try:
            async with self.limit(min(until, self.used() + seconds), patience):
                return await _Begun(work, awaited, self)
        finally:
            self.go_on()

    def go_on(self) -> None:
        if self._waits is not None:
            self._used += time.monotonic() - self._waits
            self._waits = None
        self._cpu = time.thread_time()

    def pause(self) -> None:
        """Count what passes while the work waits, unless it waits for a job, whose CPU counts."""
        if self._cpu is not None:
            self._used += time.thread_time() - self._cpu
            self._cpu = None
        self._waits = None if self._jobs else time.monotonic()

    def measured(self, job: Callable[[], Result]) -> Callable[[], Result]:
        """Return a job for a thread, whose CPU counts."""

        def work() -> Result:
            clock, name = _cpu_clock(threading.get_ident()), object()
            self._running[name] = clock, time.clock_gettime(clock)
            try:
                return job()
            finally:
                self._done.append(time.clock_gettime(clock) - self._running.pop(name)[1])

        return work

    async def job_done(self, job: Awaitable[Result]) -> Result:
        self._jobs += 1
        try:
            return await job
        finally:
            self._jobs -= 1

    @asynccontextmanager
    async def limit(self, until: float, patience: float) -> AsyncIterator[None]:
        """Raise `TimeoutError` once `until` seconds are used.

        On a busy machine it is raised after four times what is left in wall time, or `patience` if that is less.
        """
        loop, remaining = asyncio.get_running_loop(), max(0.0, until - self.used())
        last = loop.time() + max(remaining, min(_LONGEST * remaining, patience))
        timer: asyncio.TimerHandle
        async with asyncio.timeout(None) as timeout:

            def look() -> None:
                nonlocal timer
                remaining = min(until - self.used(), last - loop.time())
                if remaining <= 0:
                    timeout.reschedule(loop.time())
                else:
                    timer = loop.call_later(max(_LEAST, remaining), look)

            timer = loop.call_later(remaining, look)
            try:
                yield
            finally:
                timer.cancel()


class _Begun(Generic[Result]):
    """The rest of work that waits for something."""

    def __init__(self, work: Coroutine[Any, Any, Result], awaited: Any, work_time: WorkTime) -> None:
        self._work, self._awaited, self._work_time = work, awaited, work_time

    def __await__(self) -> Generator[Any, Any, Result]:
        while True:
            try:
                try:
                    got = yield self._awaited
                except BaseException as error:  # such as a cancellation: it is the work's to handle
                    self._work_time.go_on()
                    self._awaited = self._work.throw(error)
                else:
                    self._work_time.go_on()
                    self._awaited = self._work.send(got)
            except StopIteration as done:
                result: Result = done.value
                return result
            finally:
                self._work_time.pause()


_CURRENT: ContextVar[WorkTime] = ContextVar("work time")


def begin_work() -> WorkTime:
    """Return a new time for the request of the running task."""
    made = WorkTime()
    _CURRENT.set(made)
    return made


def current_work() -> WorkTime:
    """Return the time of the request of the running task."""
    return _CURRENT.get(None) or begin_work()
