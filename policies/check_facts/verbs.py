"""The verbs of plain sentences, and phrases that say the same as one of them. Tables only."""

import re
from collections.abc import Mapping, Sequence

from proxy.text.fold import stem
from proxy.text.vocabulary import KINDS, word_set

_PRESENT = """
be: is are be es son esta estan
have: has have get gets include includes contain contains offer offers provide provides
have: tiene tienen incluye incluyen ofrece ofrecen contiene contienen
cost: costs cost cuesta cuestan vale valen
require: requires require needs need requiere requieren necesita necesitan
support: supports support soporta soportan admite admiten
allow: allows allow permits permit permite permiten
accept: accepts accept acepta aceptan
use: uses use usa usan utiliza utilizan
open: opens open abre abren
close: closes close cierra cierran
expire: expires expire caduca caducan expira expiran
start: starts start begins begin empieza empiezan comienza comienzan
end: ends end finishes finish termina terminan acaba acaban
take: takes take lasts last tarda tardan dura duran
ship: ships ship envia envian enviamos
deliver: delivers deliver entrega entregan entregamos
meet: meets meet reune reunen
report: reports report reporta reportan depende dependen
belong: belongs belong pertenece pertenecen
locate: lies stands sits lie stand sit queda quedan encuentra encuentran ubica ubican
locate: halla hallan situa situan localiza localizan
come: comes come
lack: lacks lack excludes exclude excluye excluyen carece
live: lives live vive viven
work: works work trabaja trabajan
run: runs run corre corren
depart: departs depart sale salen
arrive: arrives arrive llega llegan
boil: boils boil hierve
melt: melts melt
freeze: freezes freeze
weigh: weighs weigh pesa pesan
measure: measures measure mide miden
listen: listens listen escucha
store: stores store guarda guardan almacena
charge: charges charge cobra cobran cobramos
pay: pays pay paga pagan
cover: covers cover cubre cubren
apply: applies apply aplica aplican
sell: sells sell vende venden vendemos
employ: employs employ emplea
return: returns return devuelve
keep: keeps keep
hold: hold holds
speak: speaks speak habla hablan
eat: eats eat
drink: drinks drink bebe
own: owns posee
leave: leaves leave
create: creates create crea crean
send: sends send
save: saves save
happen: happens happen
follow: follows follow sigue siguen
teach: teaches teach ensena
study: studies study estudia
play: plays play juega
read: reads read lee
drive: drives drive conduce
travel: travels travel viaja
connect: connects connect conecta
cause: causes cause causa
grow: grows grow crece
produce: produces produce
receive: receives receive recibe reciben
win: wins win gana
lose: loses lose pierde
add: adds add
block: blocks block bloquea
log: logs log
manage: manages dirige
"""
_PAST = """
be: was were era eran fue fueron estaba estaban
have: had included contained offered provided tenia tenian incluia tuvo
cost: costaba costo
require: required needed
support: supported
allow: allowed permitted
use: used usaba
open: opened abrio
close: closed cerro
expire: expired
start: started began
end: ended finished
take: took lasted
meet: met
report: reported
belong: belonged pertenecia
locate: lay stood sat
live: lived vivia
work: worked trabajaba
run: ran
"""
_WEAK = word_set(
    """
    get include contain offer cost require need support permit allow use open close expire start begin end finish take
    last ship deliver meet report reports belong stand sit lie live work works run runs depart arrive boil melt freeze
    store stores charge charges cover covers apply sell employ return returns keep hold speak drink measure measures
    weigh listen pay pays uses offers needs lives stands costs supports vale entrega sale paga usa cobra lack leave
    leaves create creates send save happen follow follows teach study studies play plays read reads drive drives travel
    travels connect cause causes grow produce receive win wins lose add block blocks log logs lee causa viaja juega
    """
)


def _table(text: str) -> Mapping[str, str]:
    rows = (line.partition(": ") for line in text.strip().splitlines())
    return {form: verb for verb, _, forms in rows for form in forms.split()}


PRESENT, PAST = _table(_PRESENT), _table(_PAST)
"""Verbs by their folded forms."""
STRONG = PRESENT.keys() - _WEAK | {"was", "were", "had", "era", "eran", "fue", "fueron", "tenia", "estaba"}
"""Forms that are hardly ever nouns: where one of them stands, it is the verb."""

DENIERS = word_set("not no never nunca jamas tampoco sin without cannot")
"""Words that deny what stands behind them."""
AUXILIARIES = word_set("does do did can must se puede pueden debe deben")
"""What may stand in front of a verb; of these `did` tells of the past."""
DEFINITE = word_set("the our my el la los las nuestro nuestra nuestros nuestras mi")
"""With what a subject begins of which there is one. `Your` is somebody else's."""
ADDED = word_set(
    """
    company firm empresa also actually really currently now officially api current tambien
    actualmente ahora realmente official gmbh inc ltd llc ab ag plc famous iconic famoso famosa
    """
)
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
