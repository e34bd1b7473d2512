"""Feeds every pattern of the code the texts that take longest, and prints the names of those that take too long.

Each pattern is tried in a process of its own, because a pattern cannot be interrupted.
"""

import ast
import importlib
import os
import pkgutil
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from inspect import getsource
from types import ModuleType
from typing import Any

LENGTH, WORST_LENGTH = 6_000, 120_000
GROWTH, FEWEST = 8.0, 0.04
"""A pattern is too slow if a text four times as long takes more than eight times as long (linear ones take four times,
quadratic ones sixteen), and that is at least so many seconds of computing."""
LIMIT = 10.0
"""Seconds of computing after which nothing is waited for."""
UNITS = (
    *(" ", "\n", "\t", "1", "a", "A", "é", ".", ",", "-", "_", "#", "*", "|", "/", "\\", '"', "'", "(", "[", "{", "<"),
    *("a ", "1.", "a-", "A b ", "\n ", "- ", '\\"', "is ", "a.b ", "the a of ", "x=1 ", "1,", ": ", "a\n", "El Sr. "),
)
"""Each is repeated, with a character behind it that nothing expects."""
WORST = (
    ("proxy.server.api.chat:_DISPOSITION", "", "content-disposition:"),
    ("proxy.server.api.chat:_DISPOSITION", "content-disposition:", "\r\n "),
    ("proxy.server.api.chat:_IS_MODEL", "", "name="),
    ("proxy.server.api.chat:_IS_MODEL", "", "name=a'"),
    ("proxy.server.api.chat:_PART", "", "a\r\n"),
    ("policies.resolve_clashes.values:CUES", "", "\n"),
    ("proxy.text.values:_AMOUNT", "", "1."),
    ("proxy.history.reading:_SURE_CODE", "", ".:"),
    ("policies.validate_content.measures:_PATTERNS", "as of", " "),
    ("proxy.text.sections:_MARK", "", "#  "),
    ("proxy.text.sections:_MARK", "<", "a"),
    ("proxy.upstreams.foreign.errors:_PREFIX", "Error", " "),
)
"""What took a pattern long once: what is repeated, and what stands in front of it. These texts are longer."""
JSON = ("proxy.compaction.calls:_STRING", "proxy.text.json_values:_TOKENS")
"""Patterns that read only what was parsed as JSON."""
JSON_UNITS = ('["\\"", ""]', " ", '{"\\\\": 1}')
BOUNDED: Mapping[str, int] = {}
"""Patterns that are not linear, and the most characters that they are given."""


def modules() -> list[ModuleType]:
    """Every module of the packages."""
    found = []
    for top in ("proxy", "policies"):
        package = importlib.import_module(top)
        names = [each.name for each in pkgutil.walk_packages(package.__path__, f"{top}.")]
        found += [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return found


def patterns(every: list[ModuleType]) -> Iterator[tuple[str, "re.Pattern[Any]"]]:
    """The patterns that modules and their classes hold, also within other values, with where they stand."""
    known: set[int] = set()
    for module in every:
        for name, value in vars(module).items():
            yield from _inside(value, f"{module.__name__}:{name}", known)


def _inside(value: Any, where: str, known: set[int]) -> Iterator[tuple[str, "re.Pattern[Any]"]]:
    if isinstance(value, re.Pattern) and id(value) not in known:
        known.add(id(value))
        yield where, value
    for name, each in _parts(value, where.partition(":")[0], known):
        yield from _inside(each, f"{where}{name}", known)


def _parts(value: Any, module: str, known: set[int]) -> Iterable[tuple[str, Any]]:
    """What a container holds, or a class of the module, or an object of the packages' own classes, once."""
    if isinstance(value, dict):
        return [(f"[{key!r}]", each) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{place}]", each) for place, each in enumerate(value)]
    kind = value if isinstance(value, type) else type(value)
    is_own = kind.__module__ == module if value is kind else kind.__module__.startswith(("proxy.", "policies."))
    if not is_own or id(value) in known:
        return ()
    known.add(id(value))
    return [(f".{name}", each) for name, each in getattr(value, "__dict__", {}).items()]


def calls(every: list[ModuleType]) -> dict[str, set[str]]:
    """The methods of each name that are called, as far as the code shows; other uses are a `search`."""
    found = defaultdict[str, set[str]](set)
    for module in every:
        tree = ast.parse(getsource(module))
        imported = {
            alias.asname or alias.name: f"{node.module}:{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        direct = set[int]()
        for node in ast.walk(tree):
            held = node.value if isinstance(node, ast.Attribute) else None
            held = held.value if isinstance(held, ast.Subscript) else held
            if isinstance(node, ast.Attribute) and isinstance(held, ast.Name):
                own = held.id
                direct.add(id(held))
                found[imported.get(own, f"{module.__name__}:{own}")].add(node.attr)
                found[imported.get(own, own).replace(":", ".") + f":{node.attr}"].add("search")  # `cues.NEVER`
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in direct:
                found[imported.get(node.id, f"{module.__name__}:{node.id}")].add("search")
    return found


def texts(name: str) -> Iterator[str]:
    """What a pattern is fed."""
    length = BOUNDED.get(name, LENGTH)
    for unit in JSON_UNITS if name in JSON else UNITS:
        yield (unit * length)[:length] + "\0"
    for known, before, unit in WORST:
        if known == name:
            yield before + (unit * WORST_LENGTH)[:WORST_LENGTH] + "\0"


def is_slow(pattern: "re.Pattern[Any]", methods: Set[str], given: Iterable[str]) -> bool:
    """Whether a pattern takes too long over one of the texts; the process ends where there is no end to it."""
    for text in given:
        for method in methods:
            # on a busy machine some readings take longer than others
            if all(grows(pattern, method, text) for _ in range(3)):
                return True
    return False


def grows(pattern: "re.Pattern[Any]", method: str, text: str) -> bool:
    """Whether it takes much longer over a text than over a quarter of it."""
    long = seconds(pattern, method, text)
    return long > FEWEST and long > GROWTH * seconds(pattern, method, text[: len(text) // 4] + "\0")


def seconds(pattern: "re.Pattern[Any]", method: str, given: str) -> float:
    """The seconds of computing that a pattern takes over a text."""
    text = given.encode() if isinstance(pattern.pattern, bytes) else given
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    begun = time.process_time()
    if method == "search":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, method)(text)
    return time.process_time() - begun


def main() -> None:
    """Try every pattern."""
    every = modules()
    used = calls(every)
    for where, pattern in patterns(every):
        name = re.split(r"[.\[](?!.*:)", where.partition(":")[2], maxsplit=1)[0]
        name = f"{where.partition(':')[0]}:{name}"
        methods = used[name] if used[name] and used[name] <= {"match", "fullmatch"} else {"search"}
        child = os.fork()
        if not child:
            os._exit(is_slow(pattern, methods, texts(name)))
        if os.waitpid(child, 0)[1]:
            print(where, flush=True)


if __name__ == "__main__":
    main()
