"""Work that goes on without whoever began it: drafts, verdicts, vectors, repairs. What it makes is kept elsewhere."""

import asyncio
from collections.abc import Collection, Coroutine, Hashable, Iterator
from typing import Any, Generic, TypeVar, cast

Key = TypeVar("Key", bound=Hashable)

_AGAIN = 1.0
"""Seconds after which work that goes on is cancelled once more."""


class BackgroundWork(Generic[Key]):
    """The keys of what is being made, each with its task. For use on one event loop."""

    def __init__(self) -> None:
        self._tasks: dict[Key, asyncio.Task[Any]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._tasks)

    def __contains__(self, key: Key) -> bool:
        return key in self._tasks

    def begin(self, work: Coroutine[Any, Any, Any], *keys: Key) -> None:
        """Begin work that makes what these keys stand for, none of which may be under way. It reports its failures."""
        task = asyncio.get_running_loop().create_task(work)
        taken = keys or (cast(Key, (task,)),)
        self._tasks.update(dict.fromkeys(taken, task))
        task.add_done_callback(lambda _: [self._tasks.pop(key) for key in taken] and None)

    async def wait(self, keys: Collection[Key], most: float | None = None) -> None:
        """Wait at most `most` seconds for what is under way of these keys. A cancelled wait cancels no work."""
        if tasks := {self._tasks[key] for key in keys if key in self._tasks}:
            await asyncio.wait(tasks, timeout=most)

    def forget(self, *beginning: Hashable) -> None:
        """Cancel the work for keys that begin so, such as those of a tenant."""
        for key, task in self._tasks.items():
            if cast(tuple[Any, ...], key)[: len(beginning)] == beginning:
                task.cancel()

    async def drain(self) -> None:
        while self._tasks:
            await asyncio.wait(set(self._tasks.values()))

    async def aclose(self) -> None:
        while self._tasks:
            for task in self._tasks.values():
                task.cancel()
            # once more where a library lost it, as `asyncio.wait_for` may do before Python 3.12
            await asyncio.wait(set(self._tasks.values()), timeout=_AGAIN)
