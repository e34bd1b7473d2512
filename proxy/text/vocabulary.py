"""The words by which prose is compared, in English and Spanish, folded. Tables only."""

from collections.abc import Mapping


def _table(text: str) -> Mapping[str, str]:
    """`name: form form` a line, as a mapping from forms to names."""
    rows = (line.partition(":") for line in text.strip().splitlines())
    return {form: name.strip() for name, _, forms in rows for form in forms.split()}


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


NATIONS = _table(
    """
us: american us u.s usa estadounidense
gb: british english scottish welsh britanico britanica ingles inglesa escoces
ca: canadian canadiense
de: german aleman alemana
fr: french frances francesa
es: spanish espanol espanola
it: italian italiano italiana
jp: japanese japones japonesa
cn: chinese chino china
in: indian indio
au: australian australiano australiana
mx: mexican mexicano mexicana
br: brazilian brasileno brasilena
ru: russian ruso rusa
ie: irish irlandes irlandesa
se: swedish sueco sueca
no: norwegian noruego noruega
dk: danish danes danesa
nl: dutch holandes holandesa neerlandes neerlandesa
pl: polish polaco polaca
gr: greek griego griega
tr: turkish turco turca
kr: korean coreano coreana
ar: argentine argentinian argentino argentina
cl: chilean chileno chilena
co: colombian colombiano colombiana
pe: peruvian peruano peruana
pt: portuguese portugues portuguesa
eg: egyptian egipcio egipcia
il: israeli
ir: iranian irani
fi: finnish finlandes finlandesa
at: austrian austriaco austriaca
be: belgian belga
ch: swiss suizo suiza
ua: ukrainian ucraniano ucraniana
am: armenian armenio armenia
hu: hungarian hungaro hungara
cz: czech checo checa
ro: romanian rumano rumana
ng: nigerian nigeriano nigeriana
ke: kenyan keniano keniana
th: thai tailandes tailandesa
vn: vietnamese vietnamita
ph: filipino filipina
pk: pakistani
cu: cuban cubano cubana
jm: jamaican jamaicano jamaicana
gh: ghanaian ghanes ghanesa
hr: croatian croata
rs: serbian serbio serbia
is: icelandic islandes islandesa
ma: moroccan marroqui
et: ethiopian etiope
id: indonesian indonesio indonesia
"""
)

KINDS = _table(
    """
film: film movie pelicula largometraje
series: series sitcom telenovela serie show
music: album song single ep cancion disco sencillo
book: novel book memoir novela libro
band: band duo orchestra group banda grupo
game: videogame game videojuego juego
video: video
city: city town village ciudad pueblo
country: country nation pais
river: river rio
lake: lake lago
mountain: mountain volcano montana volcan
island: island isla
party: party partido
company: company corporation corp brand bakery empresa compania marca
language: language idioma lengua
person: person actor actress singer writer author politician musician player footballer president scientist painter
person: director producer rapper model comedian engineer architect lawyer poet philosopher businessman businesswoman
person: performer artist composer drummer guitarist journalist athlete boxer wrestler chef soldier king queen doctor
person: governor senator mayor astronaut magician dentist
person: persona actriz cantante escritor escritora politico politica musico jugador futbolista presidente cientifico
person: pintor pintora artista compositor periodista atleta boxeador rey reina medico abogado ingeniero arquitecto
building: building tower bridge stadium museum hotel restaurant studio club nightclub facility space venue
building: edificio torre puente estadio museo restaurante estudio discoteca
school: school university college universidad escuela colegio
animal: animal species bird fish insect mammal especie ave pez insecto mamifero
drug: drug vaccine medicine vitamin farmaco vacuna medicamento vitamina
software: software app website aplicacion
plant: plant tree flower planta arbol flor
dish: dish dessert soup plato postre sopa
paper: newspaper magazine periodico revista
disease: disease disorder syndrome enfermedad trastorno sindrome
planet: planet moon asteroid planeta asteroide
metal: metal gas mineral
ship: ship submarine boat barco submarino buque
"""
)
"""Kinds of thing that exclude each other."""


MONTHS = _table(
    """
1: january enero
2: february febrero
3: march marzo
4: april abril
5: may mayo
6: june junio
7: july julio
8: august agosto
9: september septiembre
10: october octubre
11: november noviembre
12: december diciembre
"""
)

_COUNTED = """
zero cero|one uno|two dos|three tres|four cuatro|five cinco|six seis|seven siete|eight ocho|nine nueve|ten diez
|eleven once|twelve doce
"""
NUMBERS = {word: number for number, both in enumerate(_COUNTED.split("|")) for word in both.split()}
_TENS = "twenty veinte|thirty treinta|forty cuarenta|fifty cincuenta|sixty sesenta|seventy setenta|eighty|ninety"
NUMBERS |= {word: 10 * number for number, both in enumerate(_TENS.split("|"), 2) for word in both.split()}

UNITS: Mapping[str, tuple[str, float]] = {
    form: (unit, float(times))
    for unit, times, forms in (
        ("year", 1, "year years ano anos"), ("year", 10, "decade decades decada decadas"),
        ("year", 100, "century centuries siglo siglos"), ("month", 1, "month months mes meses"),
        ("day", 1, "day days dia dias"), ("day", 7, "week weeks semana semanas"), ("hour", 1, "hour hours hora horas"),
        ("minute", 1, "minute minutes minuto minutos"), ("percent", 1, "percent"),
        ("mile", 1, "mile miles milla millas"),
        ("metre", 1, "meter meters metre metres metro metros m"),
        ("person", 1, "people inhabitants personas habitantes"),
        ("metre", 1000, "km kilometer kilometers kilometre kilometres kilometro kilometros"),
        ("acre", 1, "acre acres"), ("hectare", 1, "hectare hectares"), ("copy", 1, "copy copies"),
        ("kilogram", 1, "kilogram kilograms kg kilo kilos"), ("ton", 1, "ton tons tonne"), ("foot", 1, "foot feet"),
        ("dollar", 1, "dollar dollars dolar dolares"), ("euro", 1, "euro euros"),
    )
    for form in forms.split()
}  # fmt: skip
"""What amounts are counted in, and how many of the unit."""

# --- relations --------------------------------------------------------------------------------------------------------

NEGATIONS = word_set(
    "not n't never no nor without isn't wasn't aren't doesn't don't cannot neither nunca jamas tampoco ni sin"
)
IS = word_set(
    """
is are was were remains called named has had uses serves acts being
es era fue son se llama tiene sigue siendo sirve usa utiliza actua
"""
)
LIES = word_set(
    """
is are was lies sits stands located situated found belongs remains can forms makes
es esta queda encuentra ubica halla sita situada situado pertenece ubicada ubicado forma hace situa localiza localizada
localizado puede
"""
)
"""With what a sentence says where something lies, between the two names."""
AT = word_set("in on to of within inside en de a al del")
HOLDS = word_set("contains includes holds encompasses contiene incluye alberga comprende")
"""With what a sentence says the same the other way round."""
FINDS = word_set("find finds found visit see discover encuentra hallar encontrar halla visitar ver")
"""Behind what a name and `in` are enough: `one can find Oslo in Norway`."""
LAID = word_set("in en within")
PLACES = word_set(
    """
city cities town towns country countries continent part region state village nation island province municipality
ciudad ciudades pueblo pueblos pais paises continente parte region estado isla provincia municipio nacion localidad
"""
)
NEAR = word_set(
    """
near close far away north south east west border borders from between bigger smaller larger than like twinned flight
drive train capital cerca lejos norte sur este oeste frontera entre mayor menor grande que desde hasta
"""
)
"""What between two names says that the one does not lie in the other, or more than that it does."""
SPANISH = word_set(
    """
    el la los las de del es en un una que se su por con para esta queda fue son y al tiene como cuesta escribio dirigio
    fundo vence
    """
)
ENGLISH = word_set("the of is in a an was and to its on by with for are that it were has")
INNER = word_set("of the de del la el los las y and & da do di van von")
"""What may stand inside a name."""
NOT_ONE = word_set(
    """
one part some most all each many much kind sort type member rest example city country town state
uno parte algunos muchos todos tipo clase miembro resto ejemplo ciudad pais pueblo estado
"""
)
"""What stands before `of` and names nothing that a subject has one of."""
PLACE_RELATIONS = word_set("in located_in location located continent country place part_of city_of region")
RELATIONS = {
    **dict.fromkeys(("ceo", "chief executive", "chief executive officer"), "ceo"),
    **dict.fromkeys(("due date", "fecha limite", "fecha de entrega"), "deadline"),
    **_table(
        """
capital: capital
currency: currency moneda divisa
population: population poblacion
author: author autor autora
president: president presidente presidenta
founder: founder fundador fundadora
director: director directora
price: price precio
date: date fecha
phone number: phone telefono
address: address direccion
name: name nombre
deadline: deadline plazo
owner: owner propietario propietaria dueno duena
height: height altura
area: area superficie
version: version
port: port puerto
language: language idioma lengua
religion: religion
anthem: anthem himno
mayor: mayor alcalde alcaldesa
king: king rey
queen: queen reina
length: length longitud
weight: weight peso
age: age edad
limit: limit limite
budget: budget presupuesto
temperature: temperature temperatura
code: code codigo
email: email correo
salary: salary salario sueldo
schedule: schedule horario
"""
    ),
}
"""Relations by the words that name them."""
