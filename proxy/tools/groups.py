"""Which tools belong together: by the operator's groups, by the name of their server, by how their descriptions begin.

Who asks for one tool of a group is likely to need others of it next. Pure.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from proxy.chat import Tool
from proxy.tools.texts import ToolText, spaced

_SENTENCE = re.compile(r"^[^:]*: (.{20,300}?[.:!])\s")
"""The first of several sentences of a description; where tools share it, it is about their server."""
_MOST = 0.5
"""The share of all tools that a prefix may have: one that nearly all have tells nothing."""
_ACTIONS = """
add book calculate cancel check close compute convert create delete do execute fetch find generate get insert is list
lookup make modify move open play put query read remove retrieve run save search select send set show start stop update
upload view write
"""
_VERBS = frozenset(_ACTIONS.split())
"""The verbs that a name may begin with: they name no subject."""


def grouped(tools: Sequence[Tool], texts: Sequence[ToolText], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the group of each tool, empty for a lone one. `groups` are globs of names, by the group's name."""
    prefixes = [_prefix(tool.name) for tool in tools]
    openings = [_opening(text) for text in texts]
    often, shared = Counter(prefixes), Counter(openings)
    group_of_each: list[str] = []
    for tool, prefix, opening in zip(tools, prefixes, openings, strict=True):
        own = next((name for name, globs in groups.items() if matches(tool.name, globs)), None)
        if own:
            group_of_each.append(f"group {own}")
        elif opening and shared[opening] > 1:
            group_of_each.append(f"opening {opening}")
        else:
            group_of_each.append(f"prefix {prefix}" if prefix and 1 < often[prefix] <= _MOST * len(tools) else "")
    return tuple(group_of_each)


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a tool's name matches one of some globs."""
    return any(fnmatchcase(name, glob) for glob in globs)


def _prefix(name: str) -> str:
    """Return the beginning of a name, its server or subject: `mcp github` of `mcp__github__list_issues`."""
    server, _, rest = name.rpartition("__")
    if server and rest:
        return spaced(server).lower()
    first, _, more = spaced(name).lower().partition(" ")
    return first if more and first not in _VERBS else ""


def _opening(text: ToolText) -> str:
    found = _SENTENCE.match(text.meaning)
    return found[1] if found else ""
