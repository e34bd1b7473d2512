"""Groups of words of which one holds at a time, in English and Spanish. Pure.

A group's members stand between bars, the names of one member between commas. A group may ask for a word beside it
without which its members mean something else.
"""

import re
from typing import NamedTuple

from policies.resolve_clashes.values import Value

_COLOURS = (
    "red, rojo, roja | blue, azul | green, verde | yellow, amarillo, amarilla | black, negro, negra | white, blanco, "
    "blanca | grey, gray, gris | orange, naranja | purple, morado, morada, violeta | pink, rosa | brown, marron"
)
_LANGUAGES = (
    "english, ingles | spanish, espanol, castellano | french, frances | german, aleman | italian, italiano | "
    "portuguese, portugues | mandarin, chinese, chino | hindi | japanese, japones | korean, coreano | catalan |"
    " arabic, "
    "arabe | russian, ruso | dutch, holandes"
)
_CUISINES = (
    "italian, italiana | chinese, china | thai, tailandesa | japanese, japonesa, sushi | mexican, mexicana | indian, "
    "hindu | french, francesa | spanish, espanola | greek, griega | barbecue, barbacoa | korean, coreana |"
    " vietnamese, "
    "vietnamita | american, americana | peruvian, peruana | turkish, turca | seafood, marisco |"
    " asian, asiatica | pizza | burger, burgers, hamburguesa, hamburguesas | "
    "breakfast, brunch, desayuno | ramen, noodles | mediterranean, mediterranea | latin american | taiwanese |"
    " filipino | "
    "steak, steakhouse, asador | sandwich, sandwiches, bocadillo | tapas | vegetarian food | ice cream, helado"
)


class _Group(NamedTuple):
    name: str
    members: str
    beside: str = ""
    """Words of which one must stand in the clause, as a regular expression."""


_GROUPS = (
    _Group("account", "checking, current account, corriente | savings, saving, ahorro, ahorros",
                        "account|cuenta|balance|saldo|money|dinero|it|with|from|works"),
    _Group("price", "budget hotel, budget hotels, budget option, budget options, on a budget, cheap, cheaper, "
           "inexpensive, low-cost, barato, barata, baratos, baratas, economico, "
           "economica, "
           "economicos, economicas, low cost |"
           " mid-range, midrange, moderate, moderately priced, precio medio, gama media | "
           "luxury, luxurious, five-star, 5-star, high-end, upscale, expensive, de lujo, lujoso, lujosa, cinco "
           "estrellas, "
           "caro, cara", "hotel|restaur|place|room|one|something|algo|uno|"
           "option|apartment|flat|car|laptop|phone|trip|stay|sitio|habitaci|"
                        "piso|coche|viaje|opci"),
    _Group("cabin", "economy, coach, turista, economy class | business class, business, ejecutiva, clase ejecutiva, "
           "clase business | first class, primera clase, en primera | premium economy",
           "class|clase|fly|flight|seat|ticket|travel|cabin|viaj|vuel|asiento|billete|volar"),
    _Group("place in a row", "window, ventanilla, ventana | aisle, pasillo | middle seat, asiento central",
           "seat|asiento|sit|sent|prefer|prefier"),
    _Group("size", "small, compact, little, pequeno, pequena, chico, chica, compacto | medium, mid-size, midsize, "
           "mediano, mediana | intermediate, intermedio | standard, estandar | full-size, full size | "
           "large, big, grande | extra large",
           "car|cars|shirt|size|pizza|box|room|table|coffee|vehicle|rental|coche|coches|carro|talla|camisa|caja|"
           "mesa|tamano"),
    _Group("car", "hatchback | sedan, berlina | suv, todoterreno | minivan, van, furgoneta |"
        " convertible, descapotable | "
           "pickup truck, pickup | compact car, compacto | full-size car | standard car | sports car, deportivo"),
    _Group("home", "house, casa | apartment, flat, condo, piso, apartamento | townhouse, adosado | studio, estudio",
                        "want|look|find|prefer|rather|show|search|buy|rent|interested|busc|quiero|mejor|alquil|compr"),
    _Group("deal", "rent, renting, rental, alquilar, alquiler | buy, buying, purchase, for sale, comprar, compra",
                        "house|apartment|home|place|property|flat|casa|piso|apartamento|vivienda"),
    _Group("show", "3d | imax | 2d | regular", "show|movie|film|screening|sesion|pelicula|see|watch|ver"),
    _Group("fare", "value | flexible | premium | saver, basic", "fare|ticket|tarifa|billete"),
    _Group("airline", "united, united airlines | delta | american, american airlines | southwest | alaska | jetblue | "
           "ryanair | iberia | vueling | lufthansa | klm | air france | british airways | easyjet",
                        "fly|flight|airline|vuel|volar|aerolinea|have"),
    _Group("visibility", "private, privately, privada, privado | public, publicly, publica, publico",
                        "payment|transaction|request|visib|transfer|pago|make it|hazl"),
    _Group("sight", "museum, museo | park, parque | theme park, parque tematico | historical landmark, landmark, "
           "monument, monumento | garden, jardin | place of worship, church, temple, iglesia, templo | shopping area, "
           "shopping mall, mall, centro comercial | nature preserve, nature reserve | stadium, estadio | zoo | "
           "aquarium, acuario | art gallery, gallery, galeria | beach, playa",
                        "visit|see|attraction|sight|interested|find|something|look|search|ver|visitar|busc"),
    _Group("film", "adventure, aventura, aventuras | drama, dramatic, dramatica | comedy, funny, comedia, comic | "
           "horror, scary, terror, miedo | thriller, suspense | romance, romantic, love story, romantica |"
           " documentary, "
           "documental | action, accion | sci-fi, science fiction, ciencia ficcion | animated, animation, animacion | "
           "fantasy, fantasia | mystery, detective, misterio | musical | western | war, belica",
           "movie|movies|film|films|pelicula|peliculas|cine|genre|genero|watch|ver"),
    _Group("music", "pop | rock | jazz | classical, clasica | rap, hip hop, hip-hop | country | reggae | blues |"
                    " metal | "
           "electronic, electronica | folk | reggaeton | salsa | flamenco | techno | indie",
           "music|song|songs|track|tracks|album|playlist|musica|cancion|canciones|listen"),
    _Group("event", "music, concert, concerts, musica, concierto | sports, sport, games, game, baseball, "
           "basketball, football, soccer, hockey, futbol, baloncesto, deporte, deportes | "
           "theater, theatre, teatro | museum, museo",
                        "event|events|evento|eventos|please|like|gusta|prefer|how about"),
    _Group("doctor", "psychologist, psicologo, psicologa | psychiatrist, psiquiatra | family counselor, counselor, "
           "consejero | dentist, dentista | dermatologist, dermatologo | pediatrician, pediatra | cardiologist, "
           "cardiologo | gynecologist, ginecologo | ophthalmologist, oculista, oftalmologo | physiotherapist, "
           "fisioterapeuta | general practitioner, medico de cabecera"),
    _Group("device", "kitchen, cocina | bedroom, dormitorio, habitacion | living room, salon, sala | tv, television, "
           "tele | patio | office, despacho",
                        "device|speaker|tv|television|tele|altavoz|dispositivo|play|cast|pon|reproduce"),
    _Group("diet", "vegetarian, vegetariano, vegetariana | vegan, vegano, vegana | eat meat, como carne, meat eater, "
           "eating meat, comiendo carne, omnivore, omnivoro"),
    _Group("subtitles", _LANGUAGES, "subtitles|subtitle|subs|subtitulos"),
    _Group("language", _LANGUAGES, "answer|reply|write|speak (?:to me )?in|respond|language|responde|respondeme|"
           "contesta|escribe|escribeme|habla en|hablame|idioma|translate|traduce|version"),
    _Group("cuisine", _CUISINES,
                        "food|restaurant|restaurants|cuisine|eat|dinner|lunch|comida|cocina|restaurante|cenar|comer"),
    _Group("programming language", "python | java | javascript, js | typescript |"
        " golang, in go, en go, to go instead, "
           "use go, usa go | rust | c\\+\\+ | c# | ruby | php | kotlin | swift | scala | perl | haskell | elixir"),
    _Group("database", "postgresql, postgres | mysql | sqlite | mongodb, mongo | mariadb | oracle | dynamodb |"
                       " cassandra"),
    _Group("web framework", "react | vue | angular | svelte"),
    _Group("server framework", "django | flask | fastapi | rails | laravel | express | spring boot"),
    _Group("cloud", "aws, amazon web services | azure | gcp, google cloud | heroku | digitalocean"),
    _Group("environment", "staging, preproduction, preproduccion | production, prod, produccion |"
                          " development, desarrollo", "only|solo|solamente|exclusively|exclusivamente|unicamente"),
    _Group("system", "linux, ubuntu, debian, fedora | windows | macos, mac os, os x"),
    _Group("editor", "vim, neovim | emacs | vs code, vscode, visual studio code | pycharm, intellij | sublime"),
    _Group("format", "json | xml | yaml | csv | markdown | html | pdf | docx, word | excel, xlsx | powerpoint",
                        "format|as |in |en |use |usa |send|export|output|report|informe|prefer|prefier"),
    _Group("indentation", "tabs, tabuladores | spaces, espacios", "indent|tab|tabs|tabuladores|sangr"),
    _Group("theme", "dark mode, dark theme, modo oscuro, tema oscuro |"
                    " light mode, light theme, modo claro, tema claro"),
    _Group("degrees", "celsius, centigrados | fahrenheit | kelvin"),
    _Group("measures", "metric, kilometers, kilometros | imperial, miles, millas",
                        "unit|units|system|unidades|sistema|use|usa"),
    _Group("transport", "train, tren | plane, flight, fly, avion, vuelo | bus, autobus | car, drive, coche, carro | "
           "ferry, boat, barco | bike, bici, bicicleta",
                        "prefer|rather|by|prefiero|ire en|viajare en|vamos en|voy en|mejor en|go by|travel by|"
                        "viajo en"),
    _Group("payment", "cash, efectivo, en metalico | debit card, debito | card, credit card, tarjeta | paypal |"
                      " bizum | bank transfer, "
           "transferencia", "pay|paying|payment|pago|pagar|pagare"),
    _Group("delivery", "pickup, pick it up, recogida, recogerlo | delivery, deliver it, deliver, a domicilio, envio",
                        "order|pedido|prefer|prefiero|pizza|food|comida|package|paquete"),
    _Group("channel", "email, e-mail, mail, correo, correo electronico | whatsapp | sms, text message | telegram |"
                      " slack | "
           "by phone, por telefono | by post, por correo postal",
                        "send|write|contact|notify|reach|tell|envia|manda|escrib|contacta|avisa"),
    _Group("drink", "coffee, cafe | tea, te", "prefer|prefiero|want|order|quiero"),
    _Group("ride", "shared, pool, compartido | regular | luxury, de lujo | private, privado, exclusive",
                        "ride|cab|taxi|car|viaje|trayecto|room|habitacion|coche"),
    _Group("trip", "one way, one-way, solo ida | round trip, round-trip, return ticket, ida y vuelta"),
    _Group("bed", "single room, single bed, individual | double room, double bed, doble | twin room, twin beds |"
                  " king, king-size | suite",
                        "room|bed|habitacion|cama"),
    _Group("part of the day", "in the morning, mornings, por la manana, por las mananas |"
                        " in the afternoon, afternoons, por la tarde, por las tardes |"
                        " in the evening, evenings, at night, por la noche, por las noches"),
    _Group("colour", _COLOURS),
    _Group("tone", "formal, formally, formales, de usted | informal, casual, informally, de tu, colloquial, coloquial",
                        "tone|tono|style|estilo|write|answer|escribe|responde|trata|tratame|email|letter|correo|"
                        "texto|be"),
    _Group("length", "short, brief, concise, corto, corta, cortas, breve, breves, concisa |"
                     " long, detailed, lengthy, largo, larga, largas, "
           "detallado, detallada, detalladas",
                        "answer|answers|reply|text|summary|explanation|report|respuesta|respuestas|texto|resumen|"
                        "informe|explicacion"),
    _Group("marital", "single, soltero, soltera | married, casado, casada | divorced, divorciado, divorciada |"
                      " widowed, viudo, viuda",
           "i'm|i am|soy|estoy|got|me he"),
    _Group("temperature", "hot, caliente | cold, iced, frio, fria",
                        "coffee|tea|drink|water|cafe|te|bebida|agua|milk|leche"),
)  # fmt: skip


def _named(group: _Group) -> tuple[re.Pattern[str], dict[str, str], re.Pattern[str] | None]:
    names = {
        name.strip(): members.split(",")[0].strip()
        for members in group.members.split("|")
        for name in members.split(",")
    }
    either = "|".join(sorted((name.replace("-", "[- ]") for name in names), key=len, reverse=True))
    beside = re.compile(rf"(?<![a-z0-9])(?:{group.beside})") if group.beside else None
    plain = {name.replace("\\", "").replace("-", " "): member for name, member in names.items()}
    return re.compile(rf"(?<![\w+#])(?:{either})(?![\w+#])"), plain, beside


_READ = tuple((group.name, *_named(group)) for group in _GROUPS)
_WORD = re.compile(r"[a-z0-9]+")
_SHORT = 6
"""Words of a clause that may be an answer and no more."""
_NON = re.compile(r"\b(?:no|not|non|sin|without|nada de|except|menos)[ -]+(?:\w+ )?$")


def _by_word() -> dict[str, frozenset[int]]:
    begins = [frozenset(_WORD.findall(name)[0] for name in names) for _, _, names, _ in _READ]
    return {word: frozenset(at for at, of in enumerate(begins) if word in of) for word in frozenset().union(*begins)}


_BY_WORD = _by_word()
"""The places in `_READ` of the groups that have a name which begins with a word."""


def members(clause: str, *, alone: bool = False) -> tuple[Value, ...]:
    """The members of groups that a folded clause names and does not deny.

    Where the word is missing that a group asks for, a short clause has its members as `weak`, which is their part; with
    `alone`, any clause has them, and not as weak.
    """
    said = _WORD.findall(clause)
    named = {at for word in said if word in _BY_WORD for at in _BY_WORD[word]}
    found: list[Value] = []
    for group, pattern, names, beside in map(_READ.__getitem__, sorted(named)):
        for match in pattern.finditer(clause):
            weak = beside is not None and not (
                beside.search(clause[: match.start()] + "~" + clause[match.end() :]) or beside.search(match[0], 1)
            )
            if weak and not alone and len(said) > _SHORT:
                break
            if not _NON.search(clause[max(0, match.start() - 32) : match.start()]):
                part = "weak" if weak and not alone else ""
                found.append(Value(group, part, "", names[match[0].replace("-", " ")], match.start(), match.end()))
    return tuple(found)
