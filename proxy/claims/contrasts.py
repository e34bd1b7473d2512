"""Words that exclude each other: callings, ordinals, places, opposites. Tables only, all words folded."""

from collections.abc import Mapping

from proxy.claims.vocabulary import word_set

_CALLINGS = """
acting: actor actress comedian actriz comediante
music: singer musician rapper songwriter drummer guitarist composer pianist bassist vocalist violinist conductor
music: cantante musico rapero compositor compositora pianista guitarrista baterista
writing: writer author novelist poet journalist essayist playwright columnist screenwriter
writing: escritor escritora novelista poeta periodista dramaturgo ensayista guionista
film: director producer filmmaker screenwriter cineasta productor productora guionista
dance: dancer choreographer bailarin bailarina coreografo
fashion: model modelo
sport: footballer player athlete boxer wrestler coach sprinter swimmer quarterback racer golfer cyclist goalkeeper
sport: futbolista jugador jugadora atleta boxeador nadador ciclista entrenador portero tenista
politics: president politician senator governor minister mayor congressman congresswoman statesman chancellor
politics: presidente presidenta politico politica senador gobernador ministro ministra alcalde alcaldesa diputado
science: scientist physicist chemist biologist mathematician astronomer researcher geologist economist
science: cientifico cientifica fisico quimico biologo matematico matematica astronomo investigador economista
engineering: engineer inventor programmer architect ingeniero ingeniera programador arquitecto
art: painter sculptor photographer illustrator pintor pintora escultor escultora fotografo
law: lawyer judge attorney abogado abogada juez
medicine: physician surgeon nurse dentist medico medica cirujano enfermera enfermero dentista
business: businessman businesswoman entrepreneur banker empresario empresaria banquero
church: priest bishop pope pastor sacerdote obispo papa
army: soldier admiral soldado almirante
trade: chef cook farmer carpenter plumber baker cocinero cocinera agricultor carpintero panadero
"""
CALLINGS: Mapping[str, frozenset[str]] = {
    word: frozenset(
        line.partition(":")[0] for line in _CALLINGS.strip().splitlines() if word in line.partition(":")[2].split()
    )
    for word in _CALLINGS.split()
    if not word.endswith(":")
}
"""The fields of each calling: those of `screenwriter` are two."""

STAGE = frozenset(["acting", "music", "writing", "film", "dance", "fashion"])
"""Fields whose people often do more than one: who is called an actor may direct as well."""

_ORDINALS = """
first primer primera primero|second segundo segunda|third tercer tercera tercero|fourth cuarto cuarta
|fifth quinto quinta|sixth sexto sexta|seventh septimo septima|eighth octavo octava|ninth noveno novena
|tenth decimo decima
"""
ORDINALS = {word: place for place, both in enumerate(_ORDINALS.split("|"), 1) for word in both.split()}

WIDE = word_set(
    """
    europe asia africa america oceania antarctica north south east west eastern western northern southern central world
    earth states united kingdom britain england scotland wales ireland france germany italy spain portugal poland russia
    china japan india pakistan korea vietnam thailand indonesia australia canada mexico brazil argentina chile colombia
    peru egypt nigeria kenya turkey greece sweden norway denmark finland netherlands belgium austria switzerland hungary
    romania ukraine israel iran iraq cuba jamaica us usa uk california texas florida
    europa norte sur este oeste estados unidos reino unido inglaterra escocia irlanda francia alemania italia espana
    polonia rusia japon brasil egipto turquia grecia suecia noruega dinamarca finlandia paises bajos belgica suiza
    hungria rumania ucrania corea tailandia
    """
)
"""Words of places in which others lie: who was born in Ulm was born in Germany."""

RANKED = word_set(
    """
    album novel book film season president studio wife husband largest edition episode planet king queen emperor
    disco libro pelicula temporada presidente esposa marido edicion episodio planeta rey reina
    """
)
"""Nouns of which a subject is one in a row."""

_OPPOSITES = """
real / fiction imaginar ficci
aliv / dead decease
increas / decreas declin
aument / disminuy reduc
biggest larg mayor / small menor pequen
first primer / last ultim
legal / illegal ilegal
same mism / differ distint
north norte / south sur
east este / west oeste
male masculin / female femenin
oldest elder mayor / youngest younger menor
mother madre / father padre
brother herman / sister
son hijo / daughter hija
husband marido / wife esposa
high alt / low baj
major / minor
upper / lower
left izquierd / right derech
positiv / negativ
guilty culpable / innocent inocent
rich rico / poor pobre
better mejor / worse peor
democrat / republican
success exit / fail unsuccess fracas
accept acept / reject rechaz
safe segur / danger peligr
public / privat
win won gan / lost perd
success / failur
include inclu / exclude exclu
begin start began empez comenz / end finish termin acab
open abr abiert / clos cerr cerrad
alive vivo / dead muert
rise rose sub / fall fell baj
import / export
hot calient / cold fri
even par / odd impar
allow permit / forbid prohib ban
support apoy / oppos opon
cause caus / prevent previen evit
love enamor / hate odi
amateur / profession
married casad / single solter
"""
OPPOSITES = tuple(tuple(line.split(" / ")) for line in _OPPOSITES.strip().splitlines())
"""Beginnings of words that exclude each other, in pairs."""
