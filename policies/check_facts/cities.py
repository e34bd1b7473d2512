"""Large cities with the countries they lie in, and whether two places exclude each other. All words folded."""

from collections.abc import Mapping, Sequence

from policies.check_facts import countries

_CITIES = """
gb: london=londres, manchester, liverpool, leeds, edinburgh=edimburgo, glasgow, cardiff, belfast, bristol, sheffield
gb: oxford, brighton, nottingham, southampton
ie: dublin, galway
fr: paris, lyon, marseille=marsella, toulouse, nice=niza, bordeaux=burdeos, lille, nantes, strasbourg=estrasburgo
fr: montpellier, rennes, grenoble
es: madrid, barcelona, seville=sevilla, bilbao, malaga, zaragoza, murcia, alicante, salamanca, pamplona, san sebastian
it: rome=roma, milan, naples=napoles, turin, venice=venecia, florence=florencia, bologna=bolonia, genoa=genova, palermo
it: verona, pisa
de: berlin, munich, hamburg=hamburgo, frankfurt, cologne, stuttgart, dusseldorf, dresden=dresde, leipzig, hanover
de: nuremberg, bremen, bonn, heidelberg
at: vienna=viena, salzburg=salzburgo, graz, innsbruck
ch: zurich, geneva=ginebra, basel=basilea, bern=berna, lausanne=lausana
nl: amsterdam, rotterdam, the hague=hague=la haya, utrecht, eindhoven
be: brussels=bruselas, antwerp=amberes, ghent=gante, bruges=brujas
pt: lisbon=lisboa, porto=oporto, coimbra, braga
se: stockholm=estocolmo, gothenburg=gotemburgo, malmo, uppsala
no: oslo, bergen, trondheim, stavanger
dk: copenhagen=copenhague, aarhus, odense
fi: helsinki, tampere, espoo
pl: warsaw=varsovia, krakow=cracovia, gdansk, wroclaw, poznan, lodz
cz: prague=praga, brno
hu: budapest
ro: bucharest=bucarest
gr: athens=atenas, thessaloniki=salonica, patras
ua: kyiv=kiev, lviv, odesa=odessa, kharkiv
hr: zagreb, dubrovnik
rs: belgrade=belgrado
is: reykjavik
tr: istanbul=estambul, ankara, izmir
ru: moscow=moscu, saint petersburg=st petersburg=san petersburgo, novosibirsk
us: new york=new york city=nueva york, los angeles, chicago, houston, san francisco, seattle, boston, miami, dallas
us: austin, denver, las vegas, philadelphia=filadelfia, phoenix, san diego, atlanta, detroit, minneapolis, pittsburgh
us: new orleans=nueva orleans, baltimore, milwaukee, salt lake city, nashville, honolulu, cleveland, cincinnati, orlando
ca: toronto, montreal, ottawa, calgary, edmonton, winnipeg
mx: mexico city=ciudad de mexico, monterrey, tijuana, puebla, cancun, oaxaca
cu: havana=la habana=habana
br: sao paulo, rio de janeiro, brasilia, porto alegre, recife, curitiba, belo horizonte
ar: buenos aires, rosario, mendoza
cl: santiago de chile, valparaiso
co: bogota, medellin, cali, barranquilla
pe: lima, cusco=cuzco, arequipa
ve: caracas, maracaibo
ec: quito, guayaquil
uy: montevideo
bo: la paz
py: asuncion
cn: beijing=pekin, shanghai, shenzhen, guangzhou, chengdu, wuhan
jp: tokyo=tokio, kyoto=kioto, osaka, nagoya, yokohama, sapporo, hiroshima, nagasaki
kr: seoul=seul, busan
in: delhi=new delhi=nueva delhi, mumbai=bombay, bangalore=bengaluru, chennai, kolkata=calcutta=calcuta, pune, jaipur
in: agra
th: bangkok, chiang mai
vn: hanoi, ho chi minh city=saigon
ph: manila, cebu
id: jakarta=yakarta, bandung
my: kuala lumpur
pk: karachi, lahore, islamabad
ir: tehran=teheran
iq: baghdad=bagdad
il: tel aviv, haifa, jerusalem=jerusalen
sa: riyadh=riad, jeddah
ae: dubai, abu dhabi
eg: cairo=el cairo, giza
ng: lagos, abuja
ke: nairobi, mombasa
za: johannesburg=johannesburgo, cape town=ciudad del cabo, durban, pretoria
ma: casablanca, marrakesh=marrakech, rabat
et: addis ababa=adis abeba
gh: accra
au: sydney, melbourne, brisbane, perth, adelaide, canberra
nz: auckland, wellington
"""
# left out is what several countries have one of: Birmingham, Cambridge, Cordoba, Guadalajara, Leon, Valencia


def _read() -> Mapping[str, tuple[str, str]]:
    rows = (line.partition(": ") for line in _CITIES.strip().splitlines())
    listed = ((code, city.split("=")) for code, _, cities in rows for city in cities.split(", "))
    return {name: (names[0], code) for code, names in listed for name in names}


_BY_NAME = _read()
"""The first name of a city and the code of its country, by each of its names."""


def is_known(place: str) -> bool:
    """Whether a folded name is one of a city, a country, a part of one or a continent."""
    return place in _BY_NAME or bool(_countries([place])) or bool(countries.continents([place]))


def apart(some: Sequence[str], others: Sequence[str]) -> bool | None:
    """Whether what lies at places of some folded names cannot lie at those of others; None where it is not known.

    `["lyon", "france"]` is apart from `["paris"]`, and not from `["europe"]`.
    """
    one, other = _cities(some), _cities(others)
    if one and other:
        return not one & other
    return countries.lie_apart(_countries(some), _countries(others), some, others)


def _cities(places: Sequence[str]) -> frozenset[str]:
    return frozenset(_BY_NAME[place][0] for place in places if place in _BY_NAME)


def _countries(places: Sequence[str]) -> frozenset[str]:
    """The countries that are named; if there are none, those of the cities."""
    named = frozenset(code for place in places for code in countries.named(place))
    return named or frozenset(_BY_NAME[place][1] for place in places if place in _BY_NAME)
