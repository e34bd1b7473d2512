"""The verbs of plain sentences, and phrases that say the same as one of them."""

import re
from collections.abc import Mapping, Sequence

from proxy.text.fold import stem
from proxy.text.tables import sections
from proxy.text.vocabulary import KINDS, word_set

_VERBS = sections("facts/verbs")


def _table(name: str) -> Mapping[str, str]:
    rows = (line.partition(": ") for line in _VERBS[name])
    return {form: verb for verb, _, forms in rows for form in forms.split()}


PRESENT, PAST = _table("present"), _table("past")
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


def _turns(*rows: tuple[str, str, str]) -> Mapping[str, Sequence[tuple[re.Pattern[str], str]]]:
    found: dict[str, list[tuple[re.Pattern[str], str]]] = {}
    for verb, said, then in rows:
        found.setdefault(verb, []).append((re.compile(rf"{said}(?!\w)" if said else "", re.IGNORECASE), then))
    return found


_IN = r"(?:in|at|on|en)"
_PLACED = r"(?:located|situated|found|ubicad[oa]s?|situad[oa]s?|localizad[oa]s?)"
_LOCAL = "|".join(
    form for form, kind in KINDS.items() if kind in ("building", "city", "school", "river", "lake", "island")
)
_LOCAL += "|mountain|monument|landmark|church|castle|palace|park|square|monumento|iglesia|castillo|palacio|parque|plaza"
_KIND = r"(?:an?|una?) (?:[a-zà-ÿ-]+ ){1,3}?"
TURNS = _turns(
    ("be", rf"(?:{_KIND})?(?:based|headquartered|con sede) {_IN}", "base"),
    ("be", rf"(?:{_PLACED} )?{_IN}(?= (?:the |el |la )?(?:city of |town of |ciudad de )?(?-i:[A-ZÀ-Þ]))", "locate"),
    ("be", rf"(?:an?|una?) (?:[a-zà-ÿ-]+ ){{0,2}}?(?:{_LOCAL}) (?:{_PLACED} )?(?:in|en)(?= (?-i:[A-ZÀ-Þ]))", "locate"),
    ("be", r"(?:due|scheduled)(?: (?:on|by|for|in|at))?", "due"),
    ("take", r"place(?: (?:on|in|at))?", "due"),
    ("happen", r"(?:on|in|at)?", "due"),
    ("be", r"(?:on|by|for|in|at|en|el)?$", "due"),
    ("be", r"(?:open|abiert[oa]s?) (?:until|till|hasta)", "close"),
    ("be", r"(?:open|abiert[oa]s?)", "open"),
    ("be", r"(?:closed|cerrad[oa]s?)", "close"),
    ("be", r"(?:allowed|permitted|permitid[oa]s?)", "allowed"),
    ("be", r"(?:forbidden|prohibited|banned|prohibid[oa]s?)", "-allowed"),
    ("be", r"(?:included|incluid[oa]s?) (?:in|with|en|con)", "<have"),
    ("be", r"owned by", "belong"),
    ("be", r"(?:managed|led|run|headed|dirigid[oa]) (?:by|por)", "manage"),
    ("be", r"(?:free(?: of charge)?|gratis|gratuit[oa]s?)", "free"),
    ("be", r"(?:stored|hosted|guardad[oa]s?|alojad[oa]s?) (?:in|on|en|by)", "store"),
    ("be", r"priced at", "cost"),
    (
        "have",
        r"(?:(?:its|the|their|su|la) )?(?:headquarters|head office|main office|sede(?: central)?) (?:in|en)",
        "base",
    ),
    ("come", r"with(?! no\b)", "have"),
    ("come", r"(?:without|with no)", "-have"),
    ("lack", r"", "-have"),
    ("own", r"", "<belong"),
    ("report", r"(?:to|a|de)", "report to"),
    ("locate", r"(?:in|at|on|en)", "locate"),
    ("base", r"(?:in|en)", "base"),
    ("live", r"(?:in|en)", "live"),
)
"""Of a verb, beginnings of what follows it, and the verb that both together are; `-` denies and `<` swaps the sides."""
ROLES = {
    "headquart": "base", "sed": "base", "pric": "cost", "preci": "cost", "loc": "locate", "ubicacion": "locate",
    "manag": "report to", "boss": "report to", "supervis": "report to", "jef": "report to",
    "own": "belong", "duen": "belong",
}  # fmt: skip
"""Stems of nouns: that it `of` a subject is something says the same as a verb."""
OF_ONE = frozenset(["report to", "belong", "manage", "locate", "base", "live", "store"])
"""Verbs behind which there is one name: who reports to Ada does not report to Ida."""
IN_PLACES = frozenset(["locate", "base", "live"])
ONE_WAY = frozenset(["report to", "belong", "manage"])
"""Verbs that do not hold the other way round as well."""
SETTLEMENTS = frozenset(map(stem, ["city", "town", "ciudad"]))
