"""Words that exclude each other: callings, ordinals, places, opposites. Tables only, all words folded."""

from collections.abc import Mapping

from proxy.text.fold import stem
from proxy.text.vocabulary import word_set

_CALLINGS = """
acting: actor actress comedian actriz comediante
magic: magician illusionist mago ilusionista
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
science: astronaut
science: cientifico cientifica fisico quimico biologo matematico matematica astronomo investigador economista
engineering: engineer inventor programmer architect ingeniero ingeniera programador arquitecto
art: painter sculptor photographer illustrator pintor pintora escultor escultora fotografo
law: lawyer judge attorney abogado abogada juez
medicine: physician surgeon nurse dentist medico medica cirujano enfermera enfermero dentista
business: businessman businesswoman entrepreneur banker accountant empresario empresaria banquero
teaching: teacher professor profesor profesora
aviation: pilot aviator
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

KNOWLEDGE = frozenset(["science", "engineering", "medicine", "writing", "teaching"])
OFFICE = frozenset(["politics", "law", "business", "army"])

_ORDINALS = """
first debut primer primera primero|second segundo segunda|third tercer tercera tercero|fourth cuarto cuarta
|fifth quinto quinta|sixth sexto sexta|seventh septimo septima|eighth octavo octava|ninth noveno novena
|tenth decimo decima
"""
ORDINALS = {word: place for place, both in enumerate(_ORDINALS.split("|"), 1) for word in both.split()}
ORDINALS |= dict.fromkeys(("last", "final", "ultimo", "ultima"), -1)

RANKED = word_set(
    """
    album novel book film season president studio wife husband largest edition episode planet king queen emperor single
    song sequel child series installment governor chancellor
    disco libro pelicula temporada presidente esposa marido edicion episodio planeta rey reina
    """
)
"""Nouns of which a subject is one in a row."""

GENERAL = word_set(
    """
    film movie series show book novel song album game band group person human city country company
    musician writer politician scientist athlete artist
    pelicula serie libro cancion juego grupo persona ciudad pais empresa musico escritor politico cientifico atleta
    """
)
"""Words for all of a kind: who is a drummer is a musician, so that who is no musician is no drummer."""

_SORTS = """
sport baseball: baseball
sport basketball: basketball
sport tennis: tennis
sport hockey: hockey
sport cricket: cricket
sport golf: golf
sport football: football footballer quarterback soccer futbolista
sport rugby: rugby
sport boxing: boxer boxing
sport swimming: swimmer swimming
sport cycling: cyclist cycling ciclista
screen comedy: comedy sitcom parody comedia
screen horror: horror slasher terror
screen western: western
screen documentary: documentary documental
screen porn: pornographic pornography
screen musical: musical
sound rock: rock metal punk grunge
sound jazz: jazz
sound classical: classical opera
sound rap: rap hip-hop rapper rapero
sound reggae: reggae
played board: board
played video: video videogame
played card: card
drawn animated: animated cartoon
drawn live: live-action
channel television: television tv
channel radio: radio
faith christian: christian catholic protestant lutheran baptist methodist mormon cristiano cristiana catolico catolica
faith muslim: muslim islamic musulman musulmana
faith jewish: jewish jew judio judia
faith hindu: hindu
faith buddhist: buddhist budista
faith none: atheist ateo atea
party right: conservative tory
party left: labour socialist communist
party green: green
sex male: man boy actor businessman nobleman father husband son king prince hombre nino
sex female: woman girl actress businesswoman noblewoman mother wife daughter queen princess mujer nina actriz
class mammal: mammal mamifero
class fish: fish pez
class bird: bird ave
class reptile: reptile snake lizard reptil
class insect: insect insecto
class amphibian: amphibian frog anfibio
"""
SORTS: Mapping[str, tuple[str, str]] = {
    form: (line.split()[0], line.partition(":")[0].split()[1])
    for line in _SORTS.strip().splitlines()
    for form in line.partition(":")[2].split()
}
"""What a description says of the sort of a thing, and in which respect: two sorts in one respect exclude each other."""

_OPPOSITES = """
real realistic / fiction fictional imaginary ficcion ficticio
increase increasing grow growth grew aumenta / decrease decline declining reduce shrink diminish disminuye
~ biggest large larger largest mayor / small smaller smallest menor pequeno
legal / illegal ilegal
~ same mismo / different distinto
~ north northern norte / south southern sur
~ east eastern este / west western oeste
male masculino / female femenino
~ oldest eldest elder / youngest younger
~ mother madre / father padre
~ brother hermano / sister hermana
~ son hijo / daughter hija
~ husband marido / wife esposa
~ high higher highest alto / low lower lowest bajo
~ major / minor
~ upper / lower
~ left izquierda / right derecha
good positive favorable favourable acclaim positivo bueno / bad negative poor unfavorable panned negativo malo
guilty culpable / innocent inocente
agree / disagree
approve / disapprove
continue / discontinue
honest / dishonest
correct / incorrect
complete / incomplete
dependent / independent
possible / impossible
mortal / immortal
mature / immature
perfect / imperfect
significant / insignificant
accurate / inaccurate
sufficient / insufficient
formal / informal
visible / invisible
direct / indirect
effective / ineffective
valid / invalid
moral / immoral
rich wealthy rico / impoverished pobre
~ best better mejor / worst worse peor
democrat democratic / republican
success successful exito / failure unsuccessful fracaso
accept aceptar / reject rechazar
safe seguro / dangerous peligroso
public publico / private privado
~ win won winner gano / lose lost loser perdio
victory / defeat victoria derrota
~ include included incluye / exclude excluded excluye
~ begin began beginning start started empezo comenzo / end ended finish finished terminate termino acabo
~ open opened abierto abrio / close closed cerrado cerro
alive vivo / dead muerto
~ rise rose / fall fell
import imported / export exported
~ hot caliente / cold frio
~ even / odd
allow permit / forbid prohibit ban banned prohibe
support supporter favor supported apoya / oppose opposed opposition against opone
cause / prevent
love loved / hate hated
amateur / professional
~ former ex-member / current currently
~ hero superhero protagonist / villain supervillain antagonist
entirely completely wholly / partly partially
~ ancient / modern
urban / rural
nonprofit non-profit / for-profit
temporary / permanent
~ domestic domesticated / wild
voluntary / forced
~ easy / difficult
~ fast faster / slow slower
~ heavy / light
~ famous popular / unknown obscure
standing rebuilt / demolished destroyed razed
~ strengthen / weaken
arrested jailed convicted imprisoned / acquitted exonerated
optional / mandatory compulsory obligatory
active activo / inactive defunct disbanded retired inactivo
married casado / unmarried soltero
"""


_LINES = _OPPOSITES.strip().splitlines()


def _poles() -> Mapping[str, frozenset[tuple[int, int]]]:
    found: dict[str, frozenset[tuple[int, int]]] = {}
    for number, line in enumerate(_LINES):
        for side, some in enumerate(line.removeprefix("~ ").split(" / ")):
            for word in some.split():
                found[stem(word)] = found.get(stem(word), frozenset()) | {(number, side)}
    return found


OPPOSITES = _poles()
"""Stems of words that exclude each other: the number of their pair, and the side of it."""

OF_PARTS = frozenset(number for number, line in enumerate(_LINES) if line.startswith("~"))
"""Pairs of which a thing may be both in its parts: a large lake has small islands. They need another word in common."""
