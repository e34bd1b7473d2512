"""What a person says of themselves and their things that is one at a time: a subject, a relation, an object. Pure."""

import re
from typing import NamedTuple

from policies.resolve_clashes.hints import Hints, hinted
from policies.resolve_clashes.terms import stem, terms, words

_ADVERB = r"(?:now |currently |actually |really |still |also |just |already )?"
_OBJECT = r"(?P<o>(?:[^,.;:!?]|[.,](?=\d)){1,60})"
_NOW = r"(?:ahora |actualmente |todavia |tambien )?"

_PATTERNS = Hints(
    (
        ("my", rf"\b(?:my|our) (?P<s>[a-z' ]{{2,40}}?) (?:is|are|will be|should be|ends in|ends with|"
               rf"has changed to|"
             rf"changed to|"
               rf"became|went (?:up|down) to|rose to|fell to|dropped to|increased to|grew to|reached) "
               rf"{_ADVERB}(?:(?:up|down)? ?(?:to|at) )?{_OBJECT}"),
        ("my", rf"\b(?:mi|mis|nuestro|nuestra) (?P<s>[a-z ]{{2,40}}?) (?:es|son|sera|"
               rf"seran|esta en|termina en|"
             rf"acaba en|ha cambiado a|"
               rf"cambia a|paso a ser|pasa a ser|ha pasado a ser) {_NOW}{_OBJECT}"),
        ("called", rf"\b(?:my|our|the) (?P<s>[a-z' ]{{2,30}}?) (?:is|are) (?:called|named) {_OBJECT}"),
        ("called", rf"\b(?:mi|mis|nuestr[oa]|el|la) (?P<s>[a-z ]{{2,30}}?) se llaman? {_OBJECT}"),
        ("number", r"\b(?:the|el|la) (?P<s>[a-z' ]{2,30}?) (?:is|es) (?:now |"
                   r"ahora )?(?P<o>[a-z]{0,3}-?\d[\d -]*\d)(?=$|[.,;!?]| instead| now)"),
        ("live", rf"\b(?:i|we)(?:'m| am|'ve| have)? {_ADVERB}(?:live|living|reside|based|moved|relocated|"
                 rf"settled) {_ADVERB}(?:in|to) {_OBJECT}"),
        ("live", rf"\b(?:vivo|vivimos|resido|me mude|me he mudado|"
               rf"me acabo de mudar|acabo de mudarme|nos mudamos|"
             rf"nos hemos mudado) {_NOW}(?:en|"
                 rf"a) {_OBJECT}"),
        ("work", rf"\bi(?:'m| am)? {_ADVERB}(?:work|working) {_ADVERB}(?:at|for) {_OBJECT}"),
        ("work", rf"\btrabajo {_NOW}(?:en|para) {_OBJECT}"),
        ("profession", rf"\bi(?:'m| am)? {_ADVERB}(?:work|working) {_ADVERB}as an? {_OBJECT}"),
        ("profession", rf"\btrabajo {_NOW}(?:de|como) {_OBJECT}"),
        ("name", rf"\b(?:call me|my name is|me llamo|llamame) {_OBJECT}"),
        ("origin", rf"\b(?:i'm|i am|i come) from {_OBJECT}"),
        ("birth", rf"\bi was born (?:and raised )?in {_OBJECT}"),
        ("birth", rf"\b(?:yo )?naci en {_OBJECT}"),
        ("origin", rf"\b(?:soy|vengo) de {_OBJECT}"),
        ("drive", rf"\bi {_ADVERB}drive an? {_OBJECT}"),
        ("drive", rf"\bconduzco {_NOW}una? {_OBJECT}"),
        ("study", rf"\bi(?:'m| am)? {_ADVERB}(?:study|studying|majoring in|major in) {_OBJECT}"),
        ("study", rf"\bestudio {_NOW}(?!(?:en|por|para|con|desde|mucho|todos|todas|a|al|de)\b){_OBJECT}"),
        ("prefer", rf"\b(?:i|we)(?:'d| would)? {_ADVERB}(?:prefer|rather have) {_OBJECT}"),
        ("prefer", rf"\b(?:prefiero|preferimos|preferiria) {_NOW}{_OBJECT}"),
    )
)  # fmt: skip
"""Names of relations and patterns."""
_FAVOURITE = hinted(
    rf"\b(?P<o>[^,.;:!?]{{2,40}}?) (?:is|are) {_ADVERB}my (?P<s>favou?rite [a-z' ]{{2,30}}?)(?=$|[,.;!?]| (?:now|"
    rf"and|of)\b)|"
    r"\b(?:el |la )?(?P<p>[^,.;:!?]{2,40}?) (?:es|son) (?:ahora )?mi (?P<t>[a-z ]{2,30}? favorit[oa])\b"
)
_RAISED = hinted(
    r"\bi (?:grew up|was (?:born and )?raised) in (?P<o>[^,.;:!?]{1,40})|\b(?:me crie|creci) en (?P<p>[^,.;:!?]{1,40})"
)
_COUNTED = r"\d{1,2}|twenty|thirty|forty|fifty|sixty|seventy|eighty|veinte|treinta|cuarenta|cincuenta|sesenta"
_AGE = hinted(
    rf"\bi(?:'m| am| just turned| turned|'ve turned|'ve just turned) (?:now |only |already )?(?P<o>{_COUNTED})"
    r"(?: years? old| years| yrs)?(?=$|\W*$|[,.;!] | now| and| last| this| today| so| but)|"
    rf"\b(?:tengo|acabo de cumplir|cumpli|he cumplido) (?:ya )?(?P<p>{_COUNTED})(?: anos)(?! de\b)"
)
_LOOKS = hinted(r"\b(?:i have|i've got|my (?:hair|eyes)|(?<!no )tengo|mis ojos|mi pelo)\b")
_COLOUR_OF = hinted(
    r"\b(?P<o>blond|blonde|brown|black|red|grey|gray|blue|green|hazel|dark)(?: \w+)? (?P<s>hair|eyes)\b|"
    r"\b(?P<t>hair|eyes) (?:is|are) (?P<p>blond|blonde|brown|black|red|grey|gray|blue|green|hazel|dark)\b|"
    r"\b(?P<u>pelo|ojos) (?:es |son )?(?P<q>rubio|castano|negro|moreno|pelirrojo|azules|verdes|marrones|negros)\b"
)
_JOBS = (
    "accountant|actor|actress|architect|artist|baker|banker|barber|barista|bartender|butcher|carpenter|cashier|chef|"
    "clerk|cook|dentist|designer|developer|doctor|driver|electrician|engineer|farmer|firefighter|fisherman|"
    "hairdresser|janitor|journalist|judge|lawyer|librarian|mailman|mechanic|musician|nurse|painter|paramedic|"
    "pharmacist|photographer|pilot|plumber|police officer|policeman|cop|preacher|professor|programmer|psychologist|"
    "receptionist|salesman|scientist|secretary|singer|soldier|surgeon|tailor|teacher|therapist|trucker|veterinarian|"
    "vet|waiter|waitress|welder|writer|abogad[oa]|actriz|albanil|arquitect[oa]|bomber[oa]|camarer[oa]|carniser[oa]|"
    "carpinter[oa]|cociner[oa]|conductor|conductora|contable|dentista|disenador|disenadora|electricista|enfermer[oa]|"
    "escritor|escritora|farmaceutic[oa]|fontaner[oa]|fotograf[oa]|ingenier[oa]|jardiner[oa]|juez|maestr[oa]|"
    "mecanic[oa]|medic[oa]|music[oa]|panader[oa]|peluquer[oa]|periodista|pintor|pintora|policia|profesor|profesora|"
    "programador|programadora|psicolog[oa]|secretari[oa]|soldado|taxista|veterinari[oa]"
)
_OF_KIN = (
    "mother|mom|mum|father|dad|husband|wife|brother|sister|son|daughter|madre|padre|marido|mujer|hermano|"
    "hermana|hijo|hija"
)
_JOB = hinted(
    rf"\b(?:(?P<s>i)(?:'m| am| work as| am working as)|(?:my|our|mi) (?P<k>{_OF_KIN})(?:'s| is| was| works?| worked|"
    r" es| era| trabaja| trabajo)|(?P<y>soy|trabajo (?:como|de)))"
    rf"(?: (?:now|currently|actually|all (?:his|her) life|for years|as|de|como))* (?:an? |"
    rf"una? )?(?:[a-z]+ ){{0,2}}?(?P<o>{_JOBS})\b"
)
_ONCE = tuple(
    (name, re.compile(rf"\b(?:{words})\b"))
    for name, words in (
        ("born", "born|nacio|nacieron|nacid[oa]"),
        ("died", "died|murio|murieron|fallecio|fallecieron"),
        ("buried", "buried|enterrad[oa]s?|sepultad[oa]s?"),
        ("built", "built|constructed|construid[oa]s?|se construyo|construyo|edificad[oa]s?"),
        ("founded", "founded|established|fundad[oa]s?|fundo|se fundo"),
        ("created", "created|cread[oa]s?|se creo"),
        ("invented", "invented|inventad[oa]s?|invento"),
        ("discovered", "discovered|descubiert[oa]s?|descubrio"),
        ("written", "written|escrit[oa]s?"),
        ("painted", "painted|pintad[oa]s?"),
        ("directed", "directed|dirigid[oa]s?"),
        ("composed", "composed|compuest[oa]s?"),
        ("won", "won by|ganad[oa]s? por"),
        ("conquered", "conquered|invaded|conquistad[oa]s?|invadid[oa]s?"),
        ("inaugurated", "inaugurated|inaugurad[oa]s?|inauguro|se inauguro"),
        ("launched", "launched|lanzad[oa]s?"),
        ("abolished", "abolished|abolid[oa]s?"),
        ("signed", "signed|firmad[oa]s?|se firmo"),
        ("published", "published|publicad[oa]s?|se publico"),
        ("began", "began|started|empezo|comenzo"),
        ("ended", "ended|termino|acabo|finalizo"),
    )
)
"""What happens once to something."""
_EVENT = hinted(re.compile("|".join(pattern.pattern for _, pattern in _ONCE)))
_WHEN = re.compile(r"\b(?:in|en)(?: el ano| the year)? (?P<o>1\d{3}|20\d\d)\b")
_BY = re.compile(
    r"\b(?:by|por)(?: (?:the|el|la|los|las|unos|un|an?))? (?P<o>[^,.;:!?]+?)(?=$|[,.;!?]| (?:in|on|at|en|for|para|"
    r"de)\b)"
)
_SUBJECT = re.compile(
    r"^\W*(?:(?:the|el|la|los|las|su|its?|his|her|and|y) )*(?P<s>.*?)(?: (?:was|were|is|are|fue|fueron|es|son|se|"
    r"ha sido|han sido|has been|esta|estan))*\s*$"
)

_LOOSE = frozenset(
    map(
        stem,
        words(
            "apartment bike boss car casa cat cats city class coche dog dogs eyes family "
            "familia friend friends gato hair "
            "hijo hijos home house husband job jefe kid kids life madre marido mother mom "
            "dad father brother sister son "
            "daughter wife parents padre padres hermano hermana mujer novia novio "
            "girlfriend boyfriend perro piso roommate "
            "school team town trabajo vida work amigo amiga teacher doctor neighbor neighbour body child "
            "children baby "
            "company business day problem question experience background code project app data "
        ),
    )
)
"""Of which much can be said at once."""
_BEHIND_IS = re.compile(r"(?:(?:in|at|on|near|with|from|for|about|of|to|by|de|en|con|para|sobre|por) )")
_BEHIND = re.compile(
    r"\b(?:now|instead|anymore|these days|at the moment|currently|since|but|and|because|so|then|when|with|for|"
    r"from|over|"
    r"rather than|to|ahora|actualmente|pero|porque|desde|cuando|para|y|que|al|a la|en vez|en lugar|con)\b.*$"
)
_EXACT = re.compile(r"(?:(?:el|the|at) )?(?:[\w.+-]+@[\w.-]+\w|\+?\d[\d ()-]{3,}\d|[a-z]\w*[_.-]\w[\w.-]*)(?![\w'])")
"""An address or a number that is a name: another one is another."""
_DIGITS = re.compile(r"\d+(?:[.,:]\d+)*")
_SPANISH = re.compile(r"\b(?:prefiero|preferimos|preferiria)\b")
_GENERIC = frozenset({"goal", "plan", "questi", "proble", "issue", "idea", "point", "thing", "favori", "next", "thank"})


_FAVORITE = stem("favorite")
_WITHIN = re.compile(r"^(?:an?|una?) .* (?:in|en) ")
_ARTICLE = re.compile(r"(?:an?|the|my|our|un|una|el|la|los|las|mi|myself|home)\b")


class Relation(NamedTuple):
    """Of a subject, what it is."""

    key: str
    """The subject and the relation: equal for what can have one object only."""
    object: frozenset[str]


def relations(clause: str, begins: frozenset[str], names: frozenset[str]) -> tuple[Relation, ...]:
    """The relations that a folded clause of these beginnings states; `names` are the stems of the names in it."""
    found: list[Relation] = [*_of_people(clause, begins), *_events(clause, begins)]
    for name, pattern in _PATTERNS.near(begins):
        for match in pattern.finditer(clause):
            exact = _EXACT.match(clause, match.start("o"))
            what = _BEHIND.sub("", match["o"])
            target = frozenset({exact[0]}) if exact else terms(what) or frozenset(words(what)[-1:])
            if not target:
                continue
            found += _relation(name, match, what, target, names)
    return tuple(found)


def _of_people(clause: str, begins: frozenset[str]) -> list[Relation]:
    """Where people grew up, how old they are, what they do, and what is their favourite."""
    found: list[Relation] = []
    for name, pattern in (("raised", _RAISED), ("age", _AGE)):
        match = pattern.search(clause, begins)
        said = _BEHIND.sub("", match["o"] or match["p"]) if match else ""
        if said and not _ARTICLE.match(said):
            found.append(Relation(name, frozenset(words(said)[:2]) if name == "age" else terms(said)))
    if _LOOKS.search(clause, begins):
        found += [
            Relation(f"looks {each['s'] or each['t'] or each['u']}", frozenset({each["o"] or each["p"] or each["q"]}))
            for each in _COLOUR_OF.finditer(clause, begins)
        ]
    match = _FAVOURITE.search(clause, begins)
    if match:
        found += _favourite(match["s"] or match["t"], match["o"] or match["p"])
    found += [
        Relation(f"job {match['k'] or 'i'}", frozenset({stem(match["o"])})) for match in _JOB.finditer(clause, begins)
    ]
    return found


def _favourite(subject: str, said: str) -> list[Relation]:
    target = terms(said)
    about = terms(subject.replace("favourite", "favorite"))
    return [Relation(f"my  {' '.join(sorted(about))}", target)] if target and len(about) > 1 else []


def _events(clause: str, begins: frozenset[str]) -> list[Relation]:
    """When and by whom something was done that is done once."""
    event = _EVENT.search(clause, begins)
    subject = _SUBJECT.match(clause[: event.start()]) if event else None
    if event is None or subject is None or not terms(subject["s"]):
        return []
    name = next(name for name, pattern in _ONCE if pattern.search(event[0]))
    key = f"{name} {' '.join(sorted(terms(subject['s'])))}"
    rest = clause[event.start() :]
    when, whom = _WHEN.search(rest), _BY.search(rest)
    found = [Relation(f"{key} when", frozenset({when["o"]}))] if when else []
    return found + ([Relation(f"{key} by", terms(whom["o"]))] if whom and terms(whom["o"]) else [])


def _shape(subject: frozenset[str], said: str, target: frozenset[str], names: frozenset[str]) -> str | None:
    """What kind of thing a subject is said to be: another one of the same kind takes its place, others do not."""
    if any(each[0].isdigit() for each in words(said)):
        return "number"
    if target & names:
        return "name"
    if subject & _LOOSE:
        return None
    return "in" if _BEHIND_IS.match(said) else "a" if _ARTICLE.match(said) else ""


def _relation(
    name: str, match: re.Match[str], said: str, target: frozenset[str], names: frozenset[str]
) -> list[Relation]:
    if name in ("my", "called", "number"):
        subject = terms(match["s"].replace("favourite", "favorite"))
        if not subject or subject <= _GENERIC:
            return []
        shape = _shape(subject, said, target, names) if name == "my" and _FAVORITE not in subject else ""
        target = frozenset(_DIGITS.findall(said)) if shape == "number" and not _EXACT.match(said) else target
        return [] if shape is None else [Relation(f"{name} {shape} {' '.join(sorted(subject))}", target)]
    if name == "live":
        said = _WITHIN.sub("", said)
        target = terms(said)
    if name in ("live", "origin", "work", "birth"):
        return [Relation(f"{name} {'a' if _ARTICLE.match(said) else ''}", target)]
    if name == "prefer":
        content = [word for word in words(said) if terms(word)]
        if len(content) < 2:
            return []
        head = stem(content[0] if _SPANISH.search(match[0]) else content[-1])
        return [Relation(f"prefer {head}", target - {head})] if target - {head} else []
    return [Relation(name, target)]
