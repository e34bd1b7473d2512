"""Words of English and Spanish as terms that can be compared: lower case, no accents, cut to their stems. Pure."""

import re

_ACCENTED = "áàâäéèêëíìîïóòôöúùûüñç’‘´`"
_PLAIN = "aaaaeeeeiiiioooouuuunc''''"
_FOLD = str.maketrans(_ACCENTED, _PLAIN)
_WORD = re.compile(r"[a-z0-9]+")
_STEM = 6
"""Letters of a word that count, about the stem of a long one."""
_SHORT = 3

_STOP_WORDS = """
a about after again all also although am an and any anyone anything are around as at be became because been before
being both but by can could d did do does doing done down during each either else even ever every few for from further
get gets getting give go going gone got had has have having he hello her here hers hey hi him his how however i if in
into is it its itself just kind kinda least less let like ll lot m made make makes making many may me might mine more
most much must my myself need needs now of off oh ok okay on once only or other our ours out over own please quite
rather re really s same she should since so some somebody someone something soon still such than thank thanks that the
their them then there these they thing things this those though through till to too two under until up upon us use
used using ve very want wants was we well were what when where whether which while who whom whose why will wish with
without would yeah yes yet you your yours sure right actually instead already anymore longer currently recently able
trying try know think always never not no nor none nothing nobody nowhere cannot aint al algo alguien algun alguna
algunas alguno algunos ante antes aqui asi aun aunque bajo bien cada casi como con contra cual cuales cuando cuanto
cuantos de del desde donde durante e el ella ellas ellos en entre era eran eres es esa esas ese eso esos esta estaba
estado estamos estan estar estas este esto estos estoy fue fueron ha haber habia habian han has hasta hay he hemos
hola la las le les lo los mas me mejor mi mientras mis mismo mucha muchas mucho muchos muy nada nadie ni ningun
ninguna ninguno no nos nosotros nuestra nuestro nunca jamas o os otra otras otro otros para pero poco por porque pues
que quien quiero quiere quiera quisiera necesito se sea sean segun ser sera seran seremos si sido siempre sin sino
sobre solo son soy su sus tal tambien tampoco tan tanto te tener tengo ti tiene tienen toda todas todavia todo todos
tras tu tus u un una unas uno unos usted va vale vamos van y ya yo voy haz hacer hago hace gracias favor ahora
realmente estuvo estuvieron tuvo tuvieron tenia tenian hizo hicieron hubo
"""
_STOP = frozenset(_STOP_WORDS.split())
_LIGHT_WORDS = """
add arrange ask book busca buscar call change check choose confirm dame enjoy find fine give good great help hacer
hate have keep let look love like mention modify move pick pon poner prefer prefiero preferir put recuerdame remind
request reserve reservar reserva schedule search see set show start stay switch take tell thank update visit wonder
work works would question time day date number plan way bit today tomorrow night week new nuevo nueva dime deseo
quisiera gusta gustan gustaria uso usa usamos usar using pasado pasar envialo enviar envia manda send sent set january
february march april may june july august september october november december enero febrero marzo abril mayo junio
julio agosto septiembre octubre noviembre diciembre one two three four five six seven eight nine ten eleven twelve dos
tres cuatro cinco seis siete ocho nueve diez once doce next last proximo proxima encanta encantan odio detesto cambia
cambiar pasa dia hora fecha numero manana hoy favor total better best nicer rather maybe perhaps guess quiza quizas vez
"""
"""What a request may say whatever it is about."""

_CONTRACTIONS = (
    ("can", re.compile(r"\bcan[' ]?t\b|\bcannot\b"), "can not"),
    ("won", re.compile(r"\bwon[' ]?t\b"), "will not"),
    ("m", re.compile(r"\bi ?m\b"), "i'm"),
    ("ve", re.compile(r"\bi ?ve\b"), "i've"),
    (
        "t",
        re.compile(r"\b(do|does|did|is|was|are|were|have|has|had|would|could|should|need|must|ai)n[' ]?t\b"),
        r"\1 not",
    ),
)
"""What is written out: a part of it, the pattern, and what it is to be."""
_ALIKE = {
    name: word
    for word, names in {
        "mother": "mom mum mommy mummy mama", "father": "dad daddy papa", "grandmother": "grandma granny nana",
        "grandfather": "grandpa granddad", "children": "kids kid", "television": "tv tele",
        "bike": "bicycle bicycles motorbike motorcycle bikes", "car": "automobile auto vehicle", "movie": "film",
        "movies": "films", 
        "job": "occupation", "photo": "photograph picture", "photos": "photographs pictures",
        "buy": "purchase", "bought": "purchased", "college": "university", "dinner": "supper",
        "enterrado": "sepultado", "enterrada": "sepultada", "comenzo": "empezo", "comienza": "empieza",
        "vencio": "derroto", "pelicula": "filme film",
        "alumno": "estudiante", "alumnos": "estudiantes", "coche": "carro", "construyo": "edifico erigio",
        "emplear": "utilizar", "logro": "consiguio", "habitantes": "pobladores", "batalla": "combate",
    }.items()
    for name in names.split()
}  # fmt: skip
_NAMED = re.compile(rf"\b(?:{'|'.join(_ALIKE)})\b")
_PHRASES = (
    (re.compile(r"\bpass(?:ed|es)? away\b"), "died"),
    (re.compile(r"\b(?:is|are|am|'m|'re|was|were) (?:(?:totally|strongly|completely|firmly) )?against\b"), "opposes"),
    (re.compile(r"\b(?:is|are|am|'m|'re|was|were) (?:all )?(?:in favou?r of)\b"), "supports"),
    (re.compile(r"\b(?:esta|estan|estoy|estaba|estaban) en contra de\b"), "rechaza"),
    (re.compile(r"\b(?:esta|estan|estoy|estaba|estaban) a favor de\b"), "apoya"),
)
"""Words for the same, in the form that is compared."""
_OF_PHRASES = re.compile(r"away|against|favo|contra")
_SPACED = re.compile(r"\s+(?='(?:m|s|ve|re|ll|d)\b)|(?<=\s)\s+")


def fold(text: str) -> str:
    """A text in lower case and without accents, as long as it was."""
    low = text.lower()
    return (low if len(low) == len(text) else text).translate(_FOLD)


def expanded(folded: str) -> str:
    """A folded text with its negations written out: `do not` for `don't` and `dont`; and with its words set alike."""
    folded = _SPACED.sub("", folded)
    for part, pattern, full in _CONTRACTIONS:
        if part in folded:
            folded = pattern.sub(full, folded)
    if not _ALIKE.keys().isdisjoint(words(folded)):
        folded = _NAMED.sub(lambda match: _ALIKE[match[0]], folded)
    for pattern, word in _PHRASES if _OF_PHRASES.search(folded) else ():
        folded = pattern.sub(word, folded)
    return folded


def words(folded: str) -> list[str]:
    """The words of a folded text."""
    return _WORD.findall(folded)


_ENDINGS = (
    ("ing", 6), ("ies", 5), ("ed", 5), ("ens", 6), ("ans", 6), ("es", 5), ("s", 4), ("ar", 5), ("er", 6), ("ir", 5),
    ("ieron", 7), ("aron", 6), ("iendo", 7), ("ando", 6), ("ban", 6), ("an", 5), ("en", 5),
)  # fmt: skip
"""Endings that tell nothing, each with the least letters of a word that has it."""
_BY_LAST = {each[0][-1]: tuple(other for other in _ENDINGS if other[0][-1] == each[0][-1]) for each in _ENDINGS}


def stem(word: str) -> str:
    """About the stem of a word: enough for `hotels` and `hoteles`, `live` and `living`, `viajo` and `viajar`."""
    if word.isdigit() or len(word) <= _SHORT:
        return word
    for ending, least in _BY_LAST.get(word[-1], ()):
        if word.endswith(ending) and len(word) >= least and not (ending == "s" and word[-2] in "isu"):
            word = word[: -len(ending)]
            break
    word = word[:_STEM]
    while len(word) > _SHORT and word[-1] in "aeioy":
        word = word[:-1]
    return word


def terms(folded: str) -> frozenset[str]:
    """The stems of the words that say something."""
    return frozenset(ordered(folded))


def ordered(folded: str) -> tuple[str, ...]:
    """The same in their order."""
    return tuple(stem(word) for word in words(folded) if is_term(word))


def is_term(word: str) -> bool:
    """Whether a word says something."""
    return word not in _STOP and (len(word) > 1 or word.isdigit())


_LIGHT = frozenset(stem(word) for word in _LIGHT_WORDS.split())


def telling(stems: frozenset[str]) -> frozenset[str]:
    """Those stems that say what a request is about: no numbers, no words of asking itself."""
    return frozenset(each for each in stems if each not in _LIGHT and not each[0].isdigit())
