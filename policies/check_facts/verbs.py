"""The verbs of plain sentences, and phrases that say the same as one of them."""

import re
from collections.abc import Mapping, Sequence

from proxy.text.fold import stem
from proxy.text.tables import sections
from proxy.text.vocabulary import KINDS, forms, word_set

_VERBS = sections("facts/verbs")


PRESENT, PAST = forms(_VERBS["present"]), forms(_VERBS["past"])
"""Verbs by their folded forms."""
_SURE = word_set("was were had era eran fue fueron tenia estaba")
STRONG = PRESENT.keys() - word_set(" ".join(_VERBS["weak"])) | _SURE
"""Forms that are hardly ever nouns: where one of them stands, it is the verb."""

DENIERS = word_set("not no never nunca jamas tampoco sin without cannot")
"""Words that deny what stands behind them."""
AUXILIARIES = word_set("does do did can must se puede pueden debe deben")
"""What may stand in front of a verb; of these `did` tells of the past."""
DEFINITE = word_set("the our my el la los las nuestro nuestra nuestros nuestras mi")
"""With what a subject begins of which there is one. `Your` is somebody else's."""
ADDED = word_set(" ".join(_VERBS["added"]))
"""Words that change nothing about what a sentence says."""


_LOCAL = [form for form, kind in KINDS.items() if kind in ("building", "city", "school", "river", "lake", "island")]
_PARTS = {
    "<in>": r"(?:in|at|on|en)",
    "<placed>": r"(?:located|situated|found|ubicad[oa]s?|situad[oa]s?|localizad[oa]s?)",
    "<kind>": r"(?:an?|una?) (?:[a-zà-ÿ-]+ ){1,3}?",
    "<local>": "|".join([*_LOCAL, *_VERBS["local"][0].split()]),
}
_PART = re.compile("|".join(_PARTS))


def _turns(lines: Sequence[str]) -> Mapping[str, Sequence[tuple[re.Pattern[str], str]]]:
    found: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for verb, then, said in (f"{line} ".split(" > ", 2) for line in lines):
        pattern = _PART.sub(lambda part: _PARTS[part[0]], said.strip())
        found.setdefault(verb, []).append((re.compile(rf"{pattern}(?!\w)" if pattern else "", re.IGNORECASE), then))
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
