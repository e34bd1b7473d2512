"""Scenarios of one client: each prints a line `pass|fail|skip TAB name TAB detail`, which the runner reads."""

import asyncio
import inspect
import json
import os
import sys
import urllib.parse
import urllib.request
from itertools import count

PENSTOCK = os.environ["PENSTOCK_URL"]
UPSTREAM = os.environ["SCRIPTED_URL"]
KEY = "sk-of-the-client"
TIMEOUT = 60.0

_scenarios = []
_fresh = count()


class Skip(Exception):
    """This client cannot do that; the text says why."""


def model(chain, scenario="chat"):
    """A name that no other scenario uses, so that its counts at the upstream are its own."""
    return f"{chain}/{scenario}@{os.getpid()}-{next(_fresh)}"


def scenario(function):
    """Register a scenario; it gets the chain as its first argument and runs once for each."""
    _scenarios.append(function)
    return function


def only(*chains):
    """Run a scenario for these chains instead of for both."""

    def mark(function):
        function.chains = chains
        return function

    return mark


def upstream(what, name):
    """What the upstream remembers: `count` or `last` of a model."""
    url = f"{UPSTREAM}/_{what}?model={urllib.parse.quote(name)}"
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return json.load(answer)


def requests_for(name):
    """How many requests for a model reached the upstream."""
    return upstream("count", name)["count"]


async def done(value):
    """The result of a call to a client of either colour."""
    return await value if inspect.isawaitable(value) else value


async def collected(stream):
    """All items of an iterator of either colour."""
    if hasattr(stream, "__aiter__"):
        return [item async for item in stream]
    return list(stream)


def equal(got, wanted):
    """Raises unless both are the same, and says what they are."""
    assert got == wanted, f"got {got!r}, wanted {wanted!r}"


async def raised(kind, call):
    """The error of this kind that a call must raise."""
    try:
        got = await done(call())
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised; got {got!r}")


def _one_line(text):
    return " ".join(str(text).split())[:600]


def run(*variants):
    """Run all scenarios, with each chain and each variant (further arguments, the first of which has a name)."""
    asyncio.run(_run(variants or ((),)))
    sys.stdout.flush()


async def _run(variants):
    for function in _scenarios:
        for chain in getattr(function, "chains", ("plain", "steps")):
            for variant in variants:
                name = f"{function.__name__} [{', '.join([*(str(part) for part in variant[:1]), chain])}]"
                try:
                    await asyncio.wait_for(done(function(chain, *variant[1:])), TIMEOUT)
                    verdict, detail = "pass", ""
                except Skip as reason:
                    verdict, detail = "skip", str(reason)
                except BaseException as error:
                    verdict, detail = "fail", f"{type(error).__name__}: {error}"
                print(f"{verdict}\t{name}\t{_one_line(detail)}", flush=True)
