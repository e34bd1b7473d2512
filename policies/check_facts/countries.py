"""Countries, the continents that they lie on, and words for what lies in them. Tables only, all words folded."""

from collections.abc import Iterable, Mapping

_COUNTRIES = """
europe: gb united kingdom, uk, britain, reino unido
europe: gb. england, scotland, wales
europe: gb. inglaterra, escocia
europe: ie ireland, irlanda
europe: de germany, alemania
europe: fr france, francia
europe: es spain, espana
europe: it italy, italia
europe: pt portugal
europe: nl netherlands, holland, paises bajos
europe: be belgium, belgica
europe: ch switzerland, suiza
europe: at austria
europe: se sweden, suecia
europe: no norway, noruega
europe: dk denmark, dinamarca
europe: fi finland, finlandia
europe: pl poland, polonia
europe: cz czechia, czech republic
europe: hu hungary, hungria
europe: ro romania, rumania
europe: gr greece, grecia
europe: ua ukraine, ucrania
europe: sk slovakia, eslovaquia
europe: si slovenia, eslovenia
europe: bg bulgaria
europe: al albania
europe: ee estonia
europe: lv latvia, letonia
europe: lt lithuania, lituania
europe: lu luxembourg, luxemburgo
europe: is iceland, islandia
europe: hr croatia, croacia
europe: rs serbia
asia: cn china
asia: jp japan, japon
asia: in india
asia: kr korea, corea
asia: th thailand, tailandia
asia: vn vietnam
asia: ph philippines, filipinas
asia: id indonesia
asia: my malaysia, malasia
asia: pk pakistan
asia: ir iran
asia: iq iraq, irak
asia: il israel
asia: sa saudi arabia, arabia saudita
asia: am armenia
asia: ae united arab emirates, emiratos arabes unidos
asia: sy syria, siria
asia: lb lebanon, libano
asia: np nepal
asia: bd bangladesh
asia: lk sri lanka
asia: mm myanmar
asia: kh cambodia, camboya
asia: la laos
asia: mn mongolia
asia: tw taiwan
asia: af afghanistan, afganistan
africa: eg egypt, egipto
africa: ng nigeria
africa: ke kenya, kenia
africa: za south africa, sudafrica
africa: ma morocco, marruecos
africa: et ethiopia, etiopia
africa: gh ghana
africa: tz tanzania
africa: ug uganda
africa: sn senegal
africa: dz algeria, argelia
africa: tn tunisia, tunez
africa: ao angola
africa: mz mozambique
africa: zw zimbabwe
africa: cm cameroon, camerun
america: ca canada
america: mx mexico
america: br brazil, brasil
america: ar argentina
america: cl chile
america: co colombia
america: pe peru
america: ve venezuela
america: ec ecuador
america: bo bolivia
america: py paraguay
america: uy uruguay
america: pa panama
america: cr costa rica
america: gt guatemala
america: hn honduras
america: sv el salvador
america: ni nicaragua
america: do dominican republic, republica dominicana
america: ht haiti
america: cu cuba
america: jm jamaica
oceania: au australia
oceania: nz new zealand, nueva zelanda
europe: gb yorkshire, cornwall, kent, devon, essex, sussex, lancashire, cumbria, northern ireland
europe: fr normandy, normandia, brittany, bretana, provence, provenza, alsace, alsacia, burgundy, borgona
europe: es andalusia, andalucia, catalonia, cataluna, galicia, aragon, extremadura, asturias, basque country
europe: de bavaria, baviera, saxony, sajonia, hesse, swabia
europe: it tuscany, toscana, sicily, sicilia, lombardy, lombardia, piedmont, piamonte, umbria, sardinia
europe: at tyrol, tirol
america: ca ontario, quebec, alberta, manitoba, saskatchewan, british columbia, nova scotia
oceania: au queensland, new south wales, tasmania
america: us united states, usa, us, u.s, estados unidos
america: us. alabama, alaska, arizona, arkansas, california, colorado, connecticut, delaware, florida, hawaii, idaho
america: us. illinois, indiana, iowa, kansas, kentucky, louisiana, maine, maryland, massachusetts, michigan, minnesota
america: us. mississippi, missouri, montana, nebraska, nevada, new hampshire, new jersey, new mexico, north carolina
america: us. north dakota, ohio, oklahoma, oregon, pennsylvania, rhode island, south carolina, south dakota, tennessee
america: us. texas, utah, vermont, virginia, west virginia, wisconsin, wyoming
"""
# `Georgia` is left out, because it is two; so is `Turkey`, which is partly in Europe, and `Russia`


def _read() -> tuple[Mapping[str, list[tuple[frozenset[str], str]]], Mapping[str, str]]:
    names: dict[str, list[tuple[frozenset[str], str]]] = {}
    continents: dict[str, str] = {}
    for line in _COUNTRIES.strip().splitlines():
        continent, _, rest = line.partition(": ")
        code, _, listed = rest.partition(" ")
        for name in listed.split(", "):
            part = f"{code}{name}" if code.endswith(".") else code
            continents[part] = continent
            names.setdefault(name.split()[-1], []).append((frozenset(name.split()), part))
    return names, continents


_BY_LAST_WORD, _CONTINENT = _read()
_CONTINENTS = {"europa": "europe", **{each: each for each in {*_CONTINENT.values()}}}


def lie_apart(one: frozenset[str], other: frozenset[str], some: Iterable[str], others: Iterable[str]) -> bool | None:
    """Whether two places exclude each other, by the codes of their countries and the continents among their names."""
    if one and other:
        return not any(a.startswith(b) or b.startswith(a) for a in one for b in other)
    first, second = continents(some, one), continents(others, other)
    return not first & second if first and second else None


def named(place: str) -> frozenset[str]:
    """The codes of the countries, or parts of one, that have a folded name."""
    words = frozenset(place.split())
    return frozenset(code for names, code in _BY_LAST_WORD.get(place.rpartition(" ")[2], ()) if names == words)


def continents(names: Iterable[str], codes: Iterable[str] = ()) -> frozenset[str]:
    """The continents of countries; without those, the ones that are named."""
    found = frozenset(_CONTINENT[code] for code in codes if code in _CONTINENT)
    return found or frozenset(_CONTINENTS[name] for name in names if name in _CONTINENTS)
