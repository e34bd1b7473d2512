"""What people have or are, and what they say that shows it or rules it out, in English and Spanish. Pure.

That who is single has no wife, and who is a vegetarian eats no steak, is not in the words: it is written down here.
"""

import re

from policies.resolve_clashes.hints import Hints, hinted

_FLESH = (
    "meat|beef|steaks?|burgers?|hamburgers?|bacon|ham|chicken|pork|lamb|turkey|ribs|sausages?|barbecue|bbq|veal|"
    "hot ?dogs?|pepperoni|carne|ternera|filetes?|chuletas?|chuleton|hamburguesas?|jamon|pollo|cerdo|cordero|pavo|"
    "costillas|salchichas?|barbacoa|chorizo|solomillo|entrecot"
)
_FISH = "fish|salmon|tuna|sushi|shrimps?|prawns?|lobster|cod|seafood|pescado|atun|gambas|marisco|bacalao|merluza"
_DAIRY = "cheese|milk|yogh?urt|butter|eggs?|omelet(?:te)?s?|queso|leche|yogur|mantequilla|huevos?|tortilla"
_DRINKS = "beers?|wine|whiske?y|vodka|alcohol|cocktails?|tequila|rum|gin|cerveza|vino|ron|ginebra|cubatas?|alcohol"
_PLAYED = (
    "guitar|piano|violin|drums|flute|cello|trumpet|saxophone|bass|ukulele|keyboard|clarinet|guitarra|bateria|flauta|"
    "trompeta|saxofon|bajo|teclado|clarinete"
)
_EATING = (
    r"\b(?:i|we) (?:really |also |still |usually |often |always |just |only |mostly |absolutely )*(?:eat|ate|had|have|"
    r"love|like|enjoy|cook|grill|ordered|order)\b[^.,;]{0,30}\b(?:X)\b|\b(?:i'm|i am|we're) (?:eating|grilling|"
    r"cooking|"
    r"having)\b[^.,;]{0,30}\b(?:X)\b|\bmy favou?rite (?:food|meal|dish)[^.,;]{0,20} (?:is|are) [^.,;]{0,20}\b(?:X)\b|"
    r"\b(?:X) (?:is|are) my favou?rites?\b|"
    r"\b(?:como|comemos|comi|comimos|cene|ceno|desayune|desayuno|he comido|he cenado|me comi|me comere|me encantan?|"
    r"me gustan?)\b[^.,;]{0,30}\b(?:X)\b|\bmi (?:comida|plato) favorit[oa] (?:es|son) [^.,;]{0,20}\b(?:X)\b"
)
_VEGAN = (
    r"\b(?:i'm|i am|we're|we are|i became|i've been|i have been|i went|i've gone|soy|somos|"
    r"me he hecho) (?:an? )?(?:strict )?"
)
_NO = r"\b(?:i|we) (?:do not|never|can not|did not|no longer)(?: ever| really| actually)? "


def _eaten(words: str) -> str:
    return _EATING.replace("X", words)


_TRAITS = (
    ("eats meat", _eaten(_FLESH),
     _VEGAN + r"(?:vegetarian|vegan|vegetarian[oa]s?|vegan[oa]s?)\b|" + _NO + r"(?:eat|touch|like) (?:any |red )?"
     r"(?:meat|animals)\b|\b(?:no|nunca) com(?:o|emos) (?:nada de )?carne\b"),
    ("eats fish", _eaten(_FISH),
     _VEGAN + r"(?:vegetarian|vegan|vegetarian[oa]s?|vegan[oa]s?)\b|" + _NO + r"(?:eat|touch) (?:any )?(?:fish|"
         r"seafood)\b|"
     r"\b(?:no|nunca) com(?:o|emos) pescado\b"),
    ("eats what animals give", _eaten(_DAIRY), _VEGAN + r"(?:vegan|vegan[oa]s?)\b"),
    ("drinks", r"\b(?:i|we) (?:usually |often |always |just |also |still )*(?:drink|drank|had|love|like|"
         r"enjoy)\b[^.,;]{0,25}"
     rf"\b(?:{_DRINKS})\b|\b(?:order|bring|pour|get) (?:me |us )?(?:an? )?(?:\w+ ){{0,3}}(?:{_DRINKS})\b|"
     rf"\b(?:bebo|bebi|tomo|tome|me encantan?|me gustan?)\b[^.,;]{{0,25}}\b(?:{_DRINKS})\b",
     _NO + r"drink(?: any)?(?: alcohol| anymore| at all)?\W*$|\bi(?:'m| am) (?:sober|a teetotaler)\b|"
     r"\b(?:no|nunca) beb(?:o|emos)(?: nada de)? alcohol\b|\bsoy abstemi[oa]\b"),
    ("coffee", r"\b(?:i|we) (?:usually |often |always |just |also |still )*(?:drink|drank|had|have|love|"
         r"like)\b[^.,;]{0,25}\bcoffees?\b|"
     r"\b(?:bebo|tomo|tome|bebi|me encanta)\b[^.,;]{0,15}\bcafes?\b",
     _NO + r"(?:drink|like|have|touch)(?: any)? coffee\b|\b(?:no|nunca) (?:beb|tom)o(?: nada de)? cafe\b"),
    ("brothers or sisters",
     r"\b(?:my|our) (?:older |younger |little |big |twin |baby |two |three |four |\d )*(?:brothers?|sisters?|"
     r"siblings?)\b(?!'s? wife|[- ]in[- ]| company)|"
     r"\bi(?: also)? have (?:an? |one |two |three |four |five |six |\d )(?:older |younger |little |big |"
     r"twin )*(?:brothers?|sisters?|siblings?)\b|"
     r"\bi(?: also)? have [^.,;]{0,30}\b(?:brothers?|sisters?)\b|\bi(?:'m| am) the (?:youngest|oldest|middle|"
     r"eldest|second) (?:of|child)\b|\bmis? (?:\w+ )?herman[oa]s?\b|"
     r"\btengo (?:un|una|dos|tres|cuatro|cinco|\d) herman[oa]s?\b",
     r"\bonly child\b|\b(?:do not|never) (?:have|had) (?:any )?(?:siblings|brothers or sisters|"
     r"sisters or brothers)\b|"
     r"\bhave no (?:siblings|brothers or sisters)\b|\bhij[oa] unic[oa]\b|\bno tengo hermanos\b"),
    ("a partner",
     r"\b(?<!ex )(?<!late )my (?:lovely |new |beautiful )?(?:wife|husband|girlfriend|boyfriend|fiancee?|"
     r"spouse)\b(?! and i (?:divorced|broke|split)|"
     r" left| dumped)|\bi(?:'m| am)(?: already| happily)? (?:married|engaged)\b|\b(?:i|we)(?: got| have been|"
     r"'ve been) married\b|"
     r"\bmi (?:mujer|marido|esposa|esposo|novi[oa])\b|\b(?:estoy|llevo) (?:felizmente )?casad[oa]\b|"
     r"\bme (?:he casado|case)\b",
     r"\bi(?:'m| am)(?: still| currently)? single\b|\bi(?:'m| am)(?: still)? not (?:yet )?(?:married|"
     r"in a relationship)\b|"
     r"\bi(?:'ve| have)? never (?:been |got )?(?:married|had a (?:boyfriend|girlfriend))\b|\b(?:soy|estoy|"
     r"sigo) solter[oa]\b|"
     r"\bno (?:estoy casad[oa]|tengo (?:pareja|novi[oa]|marido|mujer))\b|"
     r"\bi do not have a (?:girlfriend|boyfriend|wife|husband|partner)\b"),
    ("someone to live with", r"\b(?:my|our) (?:room|flat|house)-?mates?\b|\bi live with\b|"
         r"\bmis? companer[oa]s? de piso\b|\bvivo con\b",
     r"\bi(?:'m| am)?(?: now)? (?:live|living) (?:all )?(?:alone|by myself|on my own)\b|\bvivo sol[oa]\b"),
    ("work",
     r"\b(?<!lost )(?<!quit )my (?:current |new )?(?:job|boss|coworkers?|colleagues|workplace)\b(?! (?:search|"
     r"interview|application))|"
     r"\bi(?:'m| am)? (?:currently |now )?(?:work|working) (?:as|at|for)\b|\bmi (?:trabajo|jef[ea])\b|"
     r"\btrabajo (?:de|como|en|para)\b",
     r"\b(?:i|we)(?:'m| am)(?: currently| still| now)? (?:unemployed|jobless|out of work|retired)\b|"
     r"\bi (?:do not|never) have a job\b|"
     r"\bi have no job\b|\bi do not work (?:at the moment|right now|anymore|currently)|\b(?:estoy|"
     r"sigo) (?:en (?:el )?paro|sin trabajo|desemplead[oa]|jubilad[oa])\b|"
     r"\bno tengo trabajo\b|"
     r"\bno trabajo\W*$"),
    ("a younger brother or sister",
     r"\b(?:my|our|have an?|have \w+|(?:one|two|three|\d) of my) (?:\d |two |three |four )?(?:younger|little|"
     r"baby|kid) "
     r"(?:brothers?|sisters?|siblings?)\b|\bi(?:'m| am) the (?:oldest|eldest)(?! friend)\b|"
     r"\bmis? herman[oa]s? (?:pequen[oa]|menor)",
     r"\bi(?:'m| am) the (?:youngest|baby of)\b|\bsoy (?:el|la) (?:menor|pequen[oa])\b"),
    ("an older brother or sister",
     r"\b(?:my|our|have an?|have \w+) (?:\d |two |three |four )?(?:older|big|elder) (?:brothers?|sisters?|"
     r"siblings?)\b|"
     r"\bi(?:'m| am) the (?:youngest|baby of)\b|\bmis? herman[oa]s? (?:mayor|mayores)\b",
     r"\bi(?:'m| am) the (?:oldest|eldest)(?! friend)\b|\bsoy (?:el|la) mayor\b"),
    ("early hours",
     r"\b(?:early bird|(?<!not a )(?<!not really a )morning person|early riser)\b|\bi (?:\w+ )?(?:wake|"
     r"get) up (?:\w+ )?"
     r"(?:early|at [3-6](?::\d\d)? ?a)|\b(?:madrugo|me levanto (?:muy |siempre )*temprano)\b",
     r"\b(?:night owl|not (?:really )?a morning person|noctambul[oa]|ave nocturna)\b|"
     r"\bi (?:\w+ )?sleep (?:in\b|late|(?:until|till)"
     r" (?:noon|late|1\d|midday))|\bi (?:\w+ )?stay up (?:late|all night)|\b(?:nunca|no) madrugo\b|"
     r"\bme levanto (?:muy )?tarde\b"),
    ("moved here", r"\b(?:i|we)(?:'ve)? (?:just |recently |have )*(?:moved|relocated) (?:here|to|from)\b|"
     r"\bme (?:he mudado|mude)\b|\bacabo de mudarme\b",
     r"\b(?:i|we)(?:'ve| have)? (?:always )?(?:lived|been) (?:here|in [a-z ]{2,20}|there) (?:all my|"
     r"my (?:whole|entire)) life\b|"
     r"\bi(?:'ve| have) never (?:lived|moved) (?:anywhere|away|out)\b|\b(?:llevo|"
     r"he vivido) (?:aqui )?toda (?:la|mi) vida\b"),
    ("high school", r"\bi(?:'m| am)(?: still| currently)? (?:in|an? (?:\w+ )?(?:freshman|sophomore|junior|"
        r"senior|student) (?:in|at)) "
     r"(?:high|middle) ?school\b|\bi(?:'m| am) in (?:the )?(?:\d+th|eighth|ninth|tenth|eleventh) grade\b",
     r"\bi (?:just )?(?:graduated|finished|dropped out)(?: \w+)? (?:of |from )?(?:high ?school|college|"
     r"university)\b|"
     r"\bi(?:'m| am) (?:retired|in college|in grad school|a (?:college|university|grad) student)\b"),
    ("college", r"\bi(?:'m| am)(?: still| currently)? (?:in|at|going to|attending|"
        r"a (?:\w+ )?student at) (?:\w+ \w+ \w+ of )?"
     r"(?:college|uni|university)\b|\bi (?:went to|attended|graduated from|"
     r"study at) (?:a )?(?:\w+ )?(?:college|university)\b|"
     r"\bi(?:'m| am) (?:in my \w+ year of|a) (?:college|university)\b|\bestudi(?:o|e) en la universidad\b",
     r"\b(?:did not|never) (?:go|went|gone|been|attend|attended) (?:to )?(?:college|university|uni)\b|"
     r"\b(?:nunca|no) (?:fui|he ido) a la universidad\b"),
    ("smoking", r"\bi (?:\w+ )?smoke\b|\bmy cigarettes\b|\bi(?:'m| am) a smoker\b|(?<!no )(?<!nunca )\bfumo\b",
     r"\b(?:do not|never|stopped|quit|hate) (?:smoke|smoked|smoking)\b|\bi(?:'m| am) (?:not a|"
     r"a non[- ]?) ?smoker\b|"
     r"\b(?:no|nunca) (?:fumo|he fumado)\b|\bdeje de fumar\b"),
    ("exercise", r"\bi (?:\w+ )?(?:go to the gym|work out|exercise|jog|lift weights)\b|\bvoy al gimnasio\b",
     r"\b(?:hate|never|do not|despise)(?: like| ever| really| to)* (?:exercis\w+|work(?:ing)? out|"
     r"go(?:ing)? to the gym)\b|\bcouch potato\b|"
     r"\b(?:no|nunca) (?:hago ejercicio|voy al gimnasio)\b"),
    ("a home of one's own", r"\bi own (?:a|my) (?:house|home|condo)\b|\bmy mortgage\b|\bwe bought (?:a|"
        r"our) (?:house|home)\b",
     r"\bi(?:'m| am)? (?:still )?rent(?:ing)? (?:an? |my )|\bmy landlord\b|\bvivo de alquiler\b|\bmi caser[oa]\b"),
    ("driving", r"\b(?:i|we) (?:always |usually |often |still |also )*(?:drive|drove)\b(?! (?:me|him|her|people|"
         r"my \w+) (?:crazy|mad))|"
     r"\bmy (?:car|truck|motorcycle)\b|\bconduzco\b|\bmi (?:coche|furgoneta)\b|\bvoy en mi coche\b",
     r"\b(?:i|we) (?:do not|can not|never|never learned (?:how )?to) drive\b|\bdo not know how to drive\b|"
     r"\bi (?:do not|never) (?:have|had|got) (?:a |my )(?:driver'?s |driving )?licen[sc]e\b|\b(?:i'm|"
     r"i am) too young to drive\b|"
     r"\bno (?:se conducir|conduzco|tengo (?:el )?(?:carne|carnet|permiso) de conducir)\b"),
    ("an instrument", rf"\b(?:i|we) (?:also |still |can |used to )*(?:play|played) (?:the |some |a (?:little|"
         rf"bit of) )?(?:{_PLAYED})\b|"
     rf"\btoco (?:el |la )?(?:{_PLAYED})\b|\bmy (?:{_PLAYED})\b",
     r"\b(?:i|we) (?:do not|can not|never)(?: \w+)? (?:play|played) (?:any|an) (?:musical )?instruments?\b|"
     r"\bno (?:toco|se tocar) ningun instrumento\b"),
    ("cooking", r"\b(?:i|we) (?:really |also |always |usually |often |do )*(?:love|enjoy|like) (?:to cook|"
         r"cooking)\b|"
     r"\b(?:i|we) (?:always |usually |often |also )*(?:cook|cooked)\b|\b(?:me (?:encanta|gusta) cocinar|"
     r"(?<!no )(?<!nunca )cocino)\b",
     r"\b(?:do not|can not|never)(?: know how to| really| like to| ever)* cook\b|\b(?:hate|dislike|do not like|"
     r"do not enjoy) cooking\b|"
     r"\b(?:no|nunca) (?:se cocinar|cocino|me gusta cocinar)\b"),
    ("several languages", r"\b(?:bilingual|trilingual|multilingual|polyglot|more than one language|bilingue)\b|"
     r"\b(?:speak|know) (?:\w+ )?(?:two|three|four|five|\d+|several|many) languages\b|\bhablo (?:dos|tres|"
     r"cuatro|cinco|varios) idiomas\b",
     r"\bonly (?:speak|know) (?:one language|english|spanish)\b|\bdo not (?:speak|know) any other languages?\b|"
     r"\bsolo (?:hablo|se) (?:un idioma|espanol|ingles)\b"),
    ("belief", r"\b(?:i|we|both|husband|wife) (?:\w+ )?(?:go|went) to (?:church|mass|bible study|mosque|"
         r"synagogue)\b|"
     r"\bi(?:'m| am) (?:very |a |quite )*(?:religious|christian|catholic|muslim|jewish|devout)\b|\bmy church\b|"
     r"\bvoy a (?:misa|la iglesia)\b|\bsoy (?:muy )?(?:religios[oa]|catolic[oa]|creyente)\b",
     r"\bi(?:'m| am) (?:not (?:really |very |the |a )*religious|an? atheist)\b|\bi (?:do not|never) (?:go|"
     r"went) to church\b|\bdo not believe in god\b|"
     r"\bno (?:soy (?:nada |muy )?(?:religios[oa]|creyente)|creo en dios|voy a misa)\b|\bsoy ate[oa]\b"),
)  # fmt: skip
_HAS, _LACKS = Hints((name, has) for name, has, _ in _TRAITS), Hints((name, lacks) for name, _, lacks in _TRAITS)
TRAITS = frozenset(name for name, _, _ in _TRAITS)
"""The names of the traits."""
_ANY = re.compile(
    r"\b(?:i|i'm|i've|we|we're|my|our|only child|husband|wife|soy|no|nunca|mis?|nuestr[oa]s?|hij[oa]|me|he|hemos|"
    r"[a-z]{3,}o|comi|"
    r"bebi|tome|cene|desayune|deje|fui|estudie|som[eo]s|[a-z]+[ei]mos)\b"
)
_NOT_SO = hinted(
    r"\b(?:vegan|veggie|vegetarian|tofu|plant|faux|fake|used to|would|if|almost|wish|solia|vegetal|vegan[oa])\b"
)
_ENDED = re.compile(r"\b(?:do not|did not|never|can not|no longer|not|hate|dislike|no|nunca|ni)\b")


def traits(clause: str, begins: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The traits that a folded clause of these beginnings shows of who says it, and those that it rules out."""
    if not _ANY.search(clause):
        return frozenset(), frozenset()
    lacks = {name for name, pattern in _LACKS.near(begins) if pattern.search(clause)}
    has = set[str]()
    if not _NOT_SO.search(clause, begins):
        for name, pattern in _HAS.near(begins):
            match = pattern.search(clause)
            if match and not _ENDED.search(clause[: match.end()]):
                has.add(name)
    return frozenset(has - lacks), frozenset(lacks)
