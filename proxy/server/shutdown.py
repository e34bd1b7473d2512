"""Stop signals: not ready at once, then no new connections, then uvicorn's own graceful stop."""

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], Any]


class Draining:
    """The handler of stop signals, ahead of the server's, and of SIGHUP. A worker whose parent is gone stops too."""

    def __init__(self, begin: Callable[[], float], reload: Callable[[], None]) -> None:
        """Call `begin` once; it returns the seconds to go on taking connections. Call `reload` on SIGHUP."""
        self.begun = False
        self._begin = begin
        self._reload = reload
        self._before: dict[int, Any] = {}
        self._parent: BaseProcess | None = None

    def install(self) -> None:
        """Install the signal handlers. Do nothing outside the main thread, where Python allows none."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            if callable(signal.getsignal(number)):
                self._before[number] = signal.signal(number, self._stop)
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        self._parent = multiprocessing.parent_process()
        if self._parent is not None:
            self._loop.add_reader(self._parent.sentinel, self._orphaned)

    def remove(self) -> None:
        self._forget_parent()
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        server: Handler = self._before[number]
        if self.begun:  # asked for again: now
            server(number, frame)
            return
        self.begun = True
        delay = self._begin()
        if delay and number == signal.SIGTERM:
            self._loop.call_soon_threadsafe(self._loop.call_later, delay, server, number, None)
        else:
            server(number, frame)

    def _orphaned(self) -> None:
        self._forget_parent()
        os.kill(os.getpid(), signal.SIGTERM)

    def _forget_parent(self) -> None:
        if self._parent is not None:
            self._loop.remove_reader(self._parent.sentinel)
            self._parent = None

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._reload)
