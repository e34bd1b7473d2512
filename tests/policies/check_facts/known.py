"""Facts that the tests trust, statements that contradict them, and ways to say such a statement without stating it."""

from policies.check_facts.trusted import Fact, Trusted

FACTS = [
    "The capital of Australia is Canberra.",
    "The capital of France is Paris.",
    "La capital de Australia es Canberra.",
    "La capital de Francia es París.",
    "Lyon is a city in France.",
    "Sydney is a city in Australia.",
    "France is in Europe.",
    "Japan is in Asia.",
    "Lyon es una ciudad de Francia.",
    "Sídney es una ciudad de Australia.",
    "Francia está en Europa.",
    "Japón está en Asia.",
    "The price of the Basic plan is 10 euros.",
    "The Basic plan costs 10 euros.",
    "El plan Básico cuesta 10 euros.",
    "The population of France is 68,373,433.",
    "Francia tiene 68 millones de habitantes.",
    "Redis listens on port 6379.",
    "The deadline of Project Atlas is May 3, 2026.",
    "La fecha de entrega del proyecto Atlas es el 3 de mayo de 2026.",
    "The currency of Japan is the yen.",
    "The currency of Mexico is the peso.",
    "The latest version of Penstock is 3.2.",
    "The author of Dune is Frank Herbert.",
    "La autora de Nada es Carmen Laforet.",
    "Ada Lovelace (10 December 1815 - 27 November 1852) was an English mathematician and writer.",
    "The Quiet Harbour is a 1986 British drama film directed by Mara Stone, and it was shot in Lisbon.",
    "Tomas Rivel is a Chilean footballer who has never played in goal.",
    "The Norwick Bridge was opened to the public in 1931 and has four arches.",
    "Glass Rivers is the second studio album by the band Marrow.",
    "Elena Duarte es una pintora portuguesa nacida en 1950.",
]

TRUSTED = Trusted(map(Fact, FACTS))

FALSE_EN = (
    "The capital of Australia is Sydney",
    "Sydney is the capital of Australia",
    "Lyon is a city in Australia",
    "France is in Asia",
    "The Basic plan costs 12 euros",
    "Redis listens on port 6380",
    "The deadline of Project Atlas is May 9, 2026",
    "Japan uses the peso as its currency",
    "The author of Dune is Isaac Asimov",
)
FALSE_ES = (
    "La capital de Australia es Sídney",
    "Sídney es la capital de Australia",
    "Lyon se encuentra en Australia",
    "Francia está en Asia",
    "El plan Básico cuesta 15 euros",
    "La fecha de entrega del proyecto Atlas es el 9 de mayo de 2026",
    "La autora de Nada es Ana María Matute",
    "Francia tiene 90 millones de habitantes",
)
FRAMES_EN = (
    "Is it true that {}?",
    "{}?",
    "{}, right?",
    "If {}, we have to change the map.",
    "Suppose {}.",
    "Imagine that {}.",
    "What if {}?",
    'She said "{}."',
    "Tom said that {}.",
    "According to the leaflet, {}.",
    "Many people believe that {}.",
    "It is a common myth that {}.",
    "It is false that {}.",
    "I wonder whether {}.",
    "Check if {}.",
    "Maybe {}.",
    "In my novel, {}.",
    "> {}.",
    "`{}.`",
    "```\n{}.\n```",
    "Translate this sentence: {}.",
    "The old claim was “{}”.",
)
FRAMES_ES = (
    "¿Es verdad que {}?",
    "¿{}?",
    "Si {}, hay que cambiar el mapa.",
    "Supongamos que {}.",
    "Imagina que {}.",
    'Ella dijo: "{}."',
    "Tomás dijo que {}.",
    "Según el folleto, {}.",
    "Mucha gente cree que {}.",
    "Es un mito que {}.",
    "Es falso que {}.",
    "Me pregunto si {}.",
    "Quizás {}.",
    "Tal vez {}.",
    "En mi novela, {}.",
    "> {}.",
    "`{}.`",
    "Traduce esta frase: {}.",
    "El cartel decía «{}».",
    "Comprueba si {}.",
)
DENIED = (
    ("The capital of Australia is Sydney", "The capital of Australia is not Sydney"),
    ("The capital of Australia is Sydney", "The capital of Australia isn't Sydney"),
    ("Sydney is the capital of Australia", "Sydney was never the capital of Australia"),
    ("Lyon is a city in Australia", "Lyon is no city in Australia"),
    ("France is in Asia", "France is not in Asia"),
    ("The Basic plan costs 12 euros", "The Basic plan doesn't cost 12 euros"),
    ("Redis listens on port 6380", "Redis never listens on port 6380"),
    ("Japan uses the peso as its currency", "Japan does not use the peso as its currency"),
    ("The author of Dune is Isaac Asimov", "Neither the author of Dune nor its editor is Isaac Asimov"),
    ("La capital de Australia es Sídney", "La capital de Australia no es Sídney"),
    ("Sídney es la capital de Australia", "Sídney nunca fue la capital de Australia"),
    ("Lyon se encuentra en Australia", "Lyon no se encuentra en Australia"),
    ("Francia está en Asia", "Francia tampoco está en Asia"),
    ("El plan Básico cuesta 15 euros", "El plan Básico no cuesta 15 euros"),
    ("La autora de Nada es Ana María Matute", "La autora de Nada no es Ana María Matute"),
)


def unstated() -> list[tuple[str, str]]:
    """A false statement, and a text that mentions it without stating it."""
    framed = [(each, frame.format(_inside(each, frame))) for each in FALSE_EN for frame in FRAMES_EN]
    framed += [(each, frame.format(_inside(each, frame))) for each in FALSE_ES for frame in FRAMES_ES]
    return [*framed, *DENIED]


def _inside(statement: str, frame: str) -> str:
    """A statement in the middle of a sentence begins with a small letter, unless a name does."""
    is_article = statement.split()[0] in ("The", "La", "El")
    begins = frame[0] in "{>`“«" or frame.endswith(('."', "”.", "».", ": {}."))
    return statement[0].lower() + statement[1:] if is_article and not begins else statement
