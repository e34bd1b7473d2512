"""The verbs of plain sentences, and phrases that say the same as one of them."""

import re
from collections.abc import Mapping, Sequence

from proxy.text.fold import stem
from proxy.text.tables import pattern_lists
from proxy.text.vocabulary import KINDS, forms, word_set

_PLACES = frozenset(["building", "city", "school", "river", "lake", "island"])
_VERBS = pattern_lists("facts/verbs", PLACE="|".join(form for form, kind in KINDS.items() if kind in _PLACES))


def _words(section: str) -> frozenset[str]:
    return word_set(" ".join(_VERBS[section]))


PRESENT, PAST = forms(_VERBS["present"]), forms(_VERBS["past"])
"""Verbs by their folded forms."""
STRONG = PRESENT.keys() - _words("weak") | _words("sure")
"""Forms that are hardly ever nouns: where one of them stands, it is the verb."""

DENIERS = _words("deny")
"""Words that deny what stands behind them."""
AUXILIARIES = _words("auxiliaries")
"""What may stand in front of a verb; of these `did` tells of the past."""
DEFINITE = _words("definite")
"""With what a subject begins of which there is one. `Your` is somebody else's."""
ADDED = _words("added")
"""Words that change nothing about what a sentence says."""
ASIDE = _words("aside")
"""Words that are not compared."""


def _turns(lines: Sequence[str]) -> Mapping[str, Sequence[tuple[re.Pattern[str], str]]]:
    found: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for verb, then, said in (f"{line} ".split(" > ", 2) for line in lines):
        pattern = rf"{said.strip()}(?!\w)" if said.strip() else ""
        found.setdefault(verb, []).append((re.compile(pattern, re.IGNORECASE), then))
    return found


TURNS = _turns(_VERBS["turns"])
"""Of a verb, beginnings of what follows it, and the verb that both together are; `-` denies and `<` swaps the sides."""
ROLES = forms(_VERBS["roles"])
"""Stems of nouns: that it `of` a subject is something says the same as a verb."""
OF_ONE = frozenset(["report to", "belong", "manage", "locate", "base", "live", "store"])
"""Verbs behind which there is one name: who reports to Ada does not report to Ida."""
IN_PLACES = frozenset(["locate", "base", "live"])
ONE_WAY = frozenset(["report to", "belong", "manage"])
"""Verbs that do not hold the other way round as well."""
SETTLEMENTS = frozenset(map(stem, ["city", "town", "ciudad"]))
