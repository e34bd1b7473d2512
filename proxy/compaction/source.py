"""Source code: imports, signatures and the first lines of comments stay, bodies go."""

import re

from proxy.compaction.limits import Limits
from proxy.compaction.lines import share, sieved
from proxy.compaction.signals import is_signal

_FEWEST = 12
_NUMBER = r"(?:\s{0,8}\d{1,6}[:|\t]? ?)?"
_OUTLINE = re.compile(
    _NUMBER + r"\s{0,40}(?:(?:async )?def |class |import |from \S+ import|(?:export |default |async |public |private "
    r"|protected |static |pub |abstract |final |inline |const )*(?:function|interface|enum|struct|trait|impl|fn|func"
    r"|type|module|namespace|package|class|def)\b|#include|use |using |package |@\w|const [A-Z]|[A-Z_]{3,40} ?=)"
)
_COMMENT = re.compile(_NUMBER + r'\s{0,40}(?:#(?!include)|//|/\*|\*|--|"""|\'\'\')')
_CODE = re.compile(
    _NUMBER
    + r"(?:\s{0,40}(?:(?:async )?def |class |import |from |return\b|if\b|for\b|while\b|else\b|elif\b|try\b|except\b"
    r"|raise\b|self\.|this\.|const |let |var |function|fn |func |pub "
    r"|use |//|#|/\*|\*|@\w|[}\])]+[;,]?$"
    r"|[\w.\[\]]{1,60} ?[-+*/]?= ?\S|[\w.]{1,60}\()|.{0,200}[;{]$)"
)


def is_source(text: str) -> bool:
    """Whether most lines read like a program and some declare something."""
    lines = text.splitlines()
    return len(lines) >= _FEWEST and share(lines, _CODE) >= 0.55 and share(lines, _OUTLINE) > 0.02


def source(text: str, limits: Limits) -> str:
    """The outline of a program, the lines before its first declaration included where they are few."""
    lines = text.splitlines()
    most = limits.rows
    kept = []
    after_comment = False
    for place, line in enumerate(lines):
        comment = _COMMENT.match(line[:300]) is not None
        stays = place < 2 or place >= len(lines) - 2 or _OUTLINE.match(line[:300]) is not None
        stays = stays or (comment and not after_comment) or ("raise" in line and is_signal(line))
        after_comment = comment
        kept.append(stays and most > 0)
        most -= kept[-1]
    return sieved(lines, kept, limits)
