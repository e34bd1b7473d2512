"""Worker threads that tell for how long they have been busy, so that one that never ends is found out."""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

_DEEPEST = 6
"""Places in the code that are told of a thread."""


class Threads(ThreadPoolExecutor):
    """An executor that knows when each of its threads began what it does now."""

    def __init__(self, name: str, count: int = 1, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` is in seconds."""
        super().__init__(max_workers=count, thread_name_prefix=f"penstock-{name}")
        self._clock = clock
        self._began: dict[int, float] = {}

    def submit(
        self, fn: Callable[Given, Result], /, *arguments: Given.args, **options: Given.kwargs
    ) -> "Future[Result]":
        """Have a thread do a job, as soon as one is free."""
        return super().submit(self._timed, fn, *arguments, **options)

    def _timed(self, job: Callable[..., Result], /, *arguments: Any, **options: Any) -> Result:
        thread = threading.get_ident()
        self._began[thread] = self._clock()
        try:
            return job(*arguments, **options)
        finally:
            del self._began[thread]

    def busy(self) -> float:
        """Seconds for which the oldest job has been under way; jobs that wait for a thread do not count."""
        began = list(self._began.values())
        return self._clock() - min(began) if began else 0.0

    def places(self) -> list[str]:
        """Where in the code the oldest job is, the innermost place last; without any content."""
        began = list(self._began.items())
        frame = sys._current_frames().get(min(began, key=lambda each: each[1])[0]) if began else None
        stack = () if frame is None else traceback.extract_stack(frame, limit=_DEEPEST)
        return [f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in stack]
