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
"""What a name may begin with that says what is done, and not with what."""


def grouped(tools: Sequence[Tool], texts: Sequence[ToolText], groups: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The group of each tool, empty for one that stands alone. `groups` are globs of names, by the group's name."""
    prefixes = [_prefix(tool.name) for tool in tools]
    openings = [_opening(text) for text in texts]
    often, said = Counter(prefixes), Counter(openings)
    found: list[str] = []
    for tool, prefix, opening in zip(tools, prefixes, openings, strict=True):
        own = next((name for name, globs in groups.items() if matches(tool.name, globs)), None)
        if own:
            found.append(f"group {own}")
        elif opening and said[opening] > 1:
            found.append(f"opening {opening}")
        else:
            found.append(f"prefix {prefix}" if prefix and 1 < often[prefix] <= _MOST * len(tools) else "")
    return tuple(found)


def matches(name: str, globs: Sequence[str]) -> bool:
    """Whether a tool's name matches one of some globs."""
    return any(fnmatchcase(name, glob) for glob in globs)


def _prefix(name: str) -> str:
    """What stands before the rest of a name: its server or subject; `mcp__github__list_issues` is `mcp github`."""
    server, _, rest = name.rpartition("__")
    if server and rest:
        return spaced(server).lower()
    first, _, more = spaced(name).lower().partition(" ")
    return first if more and first not in _VERBS else ""


def _opening(text: ToolText) -> str:
    found = _SENTENCE.match(text.meaning)
    return found[1] if found else ""
