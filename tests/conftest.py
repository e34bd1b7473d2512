"""What holds for all tests: the same examples each time, logging as it was, results that get from one process to
another, and a Redis server for who asks for one."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import numpy  # noqa: F401  # here: hypothesis looks at a module that a thread of the proxy may be importing
import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests.redis_process import RedisProcess, redis_process

# how long an example takes is the machine's business
PATIENT: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}
settings.register_profile("same", derandomize=True, max_examples=40, **PATIENT)
settings.register_profile("others", **PATIENT)  # HYPOTHESIS_PROFILE=others tries what has not been tried yet
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_asyncio_loop_factories(item: pytest.Function) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of a module with `LOOPS` run on each of them: on Python's own, and on the one that serves in production."""
    made = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {name: made[name] for name in getattr(item.module, "LOOPS", ("asyncio",))}


def pytest_collection_finish() -> None:
    """What was collected stays to the end, so nobody need look for garbage in it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A proxy in the test's own process sets the level of all loggers."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)


@pytest.fixture
def running() -> Iterator[RedisProcess]:
    """A Redis server of the test's own."""
    with redis_process() as made:
        yield made


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Half surrogates, which tests of hostile text log, cannot be sent as UTF-8: they are written as escapes."""
    return _sendable((yield))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_sendable(key): _sendable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_sendable(each) for each in value)
    return value
