"""The words by which people deny, correct, update and hedge, in English and Spanish, as patterns on folded text."""

import re

NEGATION = re.compile(
    r"\b(?:not|never|no longer|nobody|nothing|none|neither|without|no(?! (?:puedo esperar|doubt|problem|matter|"
    r"worries|se "
    r"preocupe))|nunca|jamas|nadie|nada|ningun[oa]?|tampoco|sin(?! embargo| duda))\b"
)
IMPLIED = re.compile(
    r"\b(?:refus\w+|den(?:y|ies|ied)|fail(?:s|ed)? to|avoid\w*|prevent\w*|lack(?:s|ed|ing)?|stopp?(?:s|"
    r"ed)? (?=\w+ing\b)|quit (?=\w+ing\b)|impossible|unable|doubt\w*|"
    r"se nego|nego|niega\w*|rechaz\w+|evit\w+|desmint\w+|desmiente|imposible|carec\w+|incapaz|dej\w+ de|impid\w+|"
    r"se pone en duda|no es cierto|is not true|(?:i|we)(?:'ve| have)? (?:stopped|quit|given up|gave up))\b"
)
"""What denies without a negation; together with one it affirms."""
EMPHASIS = re.compile(r"\b(?:de ningun(?:a manera| modo)|en absoluto|para nada|at all|whatsoever|any ?more)\b")
"""What makes a negation stronger and denies nothing else."""
AFFIRMED = re.compile(
    r"\bnot have (?:much |enough |the |any |a lot of )?(?:time|money|energy|chance)\b|"
    r"\bno tengo (?:mucho |mucha |nada de )?(?:tiempo|dinero|ganas|ocasion)\b|"
    r"\bnot only\b|\bno solo\b|\bnot sure\b|\bno estoy segur\w+\b|\bwhy not\b|\bdo not mind\b|\bno me importa\b|"
    r"\bdo not (?:worry|forget)\b|^\W*(?:(?:hmm+|oh|ah|uh|well|ok|okay)\W+)?(?:no|nope)\s*[,.;!]|^\W*no (?=(?:i|"
    r"we|it|the|that|please|make|just|"
    r"change|try|can|could|let|only|actually|my|this|for|on|at|in|"
    r"set|book|mejor|cambia)\b)|\b(?:not|no)(?: \w+)? (?:the only|la unica|el unico|just|all|every|"
    r"everyone|everybody|todos?|todas?|necessarily|always|siempre|just|simply|exactly|so much|only|merely|solo|"
    r"solamente|unicamente|exclusivamente)\b|\bsi bien\b|"
    r"\bno (?:es|son|fue|era) (?:mas|menos) que\b|\bno (?:es|son|fue|era|eran) (?:el|la|los|"
    r"las) (?:\w+ ){0,3}(?:mas|menos)\b|"
    r"\bnot the (?:\w+ ){0,2}(?:most|least|\w+est)\b"
)
"""What has a negation and does not deny."""
UNIVERSAL = re.compile(
    r"^\W*(?:ningun[oa]?|nadie|nunca|jamas|none|no one)\b|\b(?:nothing|anything|nobody|anyone|(?:no|nunca|"
    r"jamas) .*\b(?:nada|nadie|ningun[oa]?))\b"
)
"""What denies without exception."""
NEVER = re.compile(
    r"\b(?:i|we)(?:'ve| have| had|'d)? (?:[a-z]+ly |also |still |just )*never (?:once |ever )?(?P<a>.*)|"
    r"\b(?:i|we) have not (?:ever|yet|even|actually) (?P<b>.*)|\bhave (?:still )?never (?P<c>.*)|"
    r"\b(?:i|we) have not (?P<f>[^,.;]*?) (?:before|yet|ever|at all|so far)\b|"
    r"\b(?:i|we) have not (?:really )?(?P<n>(?:heard|seen|read|tried|been|met|used|done|had|played|visited|"
    r"worked|taken|eaten|"
    r"watched|written|talked|spoken|made|built|gone) .*)|"
    r"\b(?:i|we) have not (?P<g>[a-z]+ (?:[a-z]+ )?any .*)|\b(?:i|we) have yet to (?P<h>.*)|"
    r"\b(?:no|not have any|not have) (?:\w+ )?(?P<i>experience (?:with|in|of|using) .*)|"
    r"\bi(?:'m| am) (?:completely |totally |brand |very )?(?P<j>new to .*)|"
    r"\b(?:nunca|jamas) (?:me |lo |la )?(?=he\b|hemos\b|[a-z]+o\b|"
    r"[a-z]+[aei]mos\b)(?:he |hemos )?(?P<d>.*)|\bno (?:he|hemos) (?P<e>.*?) nunca\b|"
    r"\b(?:todavia|aun) no (?:lo |la |los |las |me )?(?:he|hemos) (?P<k>.*)|\bno (?:he|"
    r"hemos) (?P<l>[^,.;]*?) (?:todavia|aun)\b|"
    r"\bno tengo (?:ninguna )?(?P<m>experiencia (?:con|en) .*)"
)
NEVER_ENDS = re.compile(r",? (?:so|but|before|and i|pero|asi que|antes|which|because)\b|, ")
DONE = re.compile(
    r"\b(?:i've|i have|i had|i did|i was|we've|we have|we did|i(?: \w+ly)? (?!need|want|would)[a-z]+ed|"
    r"i (?:went|took|wrote|made|built|ran|saw|met|"
    r"got|read|found|spent|gave|began|bought|taught|drank|ate|use|play|drink|eat|go|do|run|work|drive|travel|"
    r"watch|listen|visit|smoke|cook|walk|ride|swim|sing|dance|write|wear|exercise|teach|study|speak|wake|sleep)|"
    r"i'm using|"
    r"i (?:\w+ )?(?:set|built|gave|led|held|kept|felt|left|taught|chose|drove|flew|rode|swam|won|wore|sang|grew)|"
    r"i've been|i have been|i completed|llevo|he|hemos|hice|fui|viaje(?= [a-z])|trabaje|tuve|estuve|comi|escribi|"
    r"jugue|bebo|como|uso|hago|voy)\b|"
    r"^\W*(?:(?:pero|y|ahora|ya|siempre) )*[a-z]{3,}o\b"
)
"""What says that something is or was done."""
DID = re.compile(
    r"\b(?:i|we) (?:\w+ly |also |just )?(?:[a-z]{3,}ed|went|took|wrote|made|ran|saw|met|got|read|spent|gave|bought|"
    r"ate|drank)\b|"
    r"\b(?:fui|fuimos|tuve|estuve|comi|corri|hice|vi|gaste|compre|visite|escribi|jugue)\b"
)
"""What says that something was done once."""
ONGOING = re.compile(
    r"\b(?:i'm|i am|we're|we are|i've been|i have been) (?:\w+ly |still |also |now )?(?!(?:interest|look|plann|"
    r"go|think|consider|"
    r"hop|learn|wonder|start|try|be|hav|do)\w*ing\b)[a-z]+ing\b|"
    r"\b(?:i'm|i am|we're) trying to (?:optimi[sz]e|improve|fix|debug|extend|refactor|speed|scale|finish|reduce|"
    r"migrate|maintain)\b|"
    r"\b(?:estoy|estamos|llevo|sigo) (?!aprendiendo|pensando|buscando|empezando|mirando)[a-z]+ndo\b"
)
"""What says that something is being done, not only begun or planned."""
LEARNING = re.compile(
    r"\b(?:learn(?:ing)?|understand(?:ing)?|understood|get started|want to|would like to|i'd like to|"
    r"interested in|curious|"
    r"aprender|entender|quiero|me gustaria)\b"
)
"""What says that something is still to be done."""
PAST = re.compile(r"\b(?:i've|i have|i had|i did|we've|we did|i [a-z]+ed|my|our|he|hemos|mi|mis|nuestr[oa])\b")
NEVER_IT = re.compile(
    r"\bnever (?:actually |really )?(?:\w+ )?(?:it|this|that|them|one)\b(?! \w+ing)|\bnunca lo h|\bi(?:'ve|"
    r" have) never (?:been|tried|done|had|gone|used)(?: there)?\W*$"
)
FROM = re.compile(r"\b(?:from|de|desde) [$€£]?$")
FIRST = re.compile(
    r"\b(?:i|we|my|our|me|us|yo|mi|mis|nos|nuestro|nuestra|soy|tengo|he|prefiero|quiero|necesito|vivo|uso|usamos|"
    r"estoy|"
    r"somos|seremos|tenemos|gusta|gustan|encanta|bebo|como|viajo|trabajo|voy|iremos|tomo|fumo|leo|juego|"
    r"conduzco|duermo|"
    r"ceno|hago|odio|detesto|adoro|llevo|suelo|hemos|desayuno)\b|"
    r"^\W*(?:(?:ya|no|nunca|siempre|me|lo|ahora|tambien|y) )*(?!(?:pero|cuando|como|todo|esto|eso|solo|mucho|"
    r"otro|segundo|"
    r"primero|bueno|claro|luego|mismo|hasta|video|hello|also|into)\b)[a-z]{3,}(?:o|amos|emos|imos)\b(?! (?:que|de)\b)"
)
OWN = re.compile(
    r"\b(?:i|we|my|our|me|yo|mi|mis|nos|nosotr[oa]s|nuestr[oa]s?|soy|tengo|prefiero|quiero|necesito|vivo|usamos|estoy|"
    r"somos|seremos|tenemos|bebo|viajo|voy|iremos|fumo|conduzco|duermo|ceno|hago|odio|detesto|adoro|llevo|suelo|hemos|"
    r"desayuno|(?:lo|la|los|las|no|nunca|ya) uso|he \w+[dt]o)\b"
)
"""What is about who says it without doubt, in lower case with its accents: no `llevó`, and no name that ends in `o`."""
CORRECTING = re.compile(
    r"\b(?:actually|instead|rather than|change|changed|changing|change of plans?|make (?:it|that)|switch(?:ed)?|"
    r"update|"
    r"correction|scratch that|never ?mind|forget (?:about|what|that)|i meant|my mistake|i was wrong|it should be|wait|"
    r"sorry|apologies|no longer|anymore|any more|double (?:it|that)|i (?:do|did) not (?:want|need|mean)|"
    r"(?:that is|that's|thats) (?:not right|wrong|incorrect)|on second thought|after all|"
    r"try (?:again|to book|booking|for|it for)|reschedule|postpone|bring forward|move (?:it|the|my)|"
    r"en realidad|mejor|en vez|en lugar|cambi\w+|al final|finalmente|perdon|lo siento|me equivoque|me he equivocado|"
    r"correccion|rectifico|ya no|olvida|olvidalo|pasan? al?|se mueve|queria decir|quise decir|"
    r"pensandolo bien|ahora prefiero|ahora quiero|actualiza\w*|que sean?|ponlo|ponla|pasal[oa]|hazl[oa]|deja de|"
    r"dejalo|aplaza\w*|"
    r"adelanta\w*|he pensado mejor)\b|"
    r"^\W*(?:(?:hmm+|oh|ah|uh|well|ok|okay|yes|yeah)\W+)?(?:no|nope)\b(?! (?:problem|thanks|thank|thats all|"
    r"that is all|gracias|me|lo|se|he|hay|estoy|"
    r"tengo|quiero|need for|worries|one|body|(?!(?:to|so|go|do|no)\b)[a-z]{2,}(?:o|amos|emos|imos)\b))"
)
UPDATED = re.compile(
    r"\b(?:increas(?:ed?|ing)|decreas(?:ed?|ing)|reduced|extended|raised|lowered|adjust(?:ed)?|updated?|"
    r"improved|grown|grew|"
    r"dropped|rose|risen|upgraded|expanded|revised|reached|(?:up|down) (?:to|from)|get it down|now|recently|new|"
    r"latest|"
    r"(?:gone|went|going) (?:up|down)|bumped|doubled|shifted|brought forward|moved|pushed|rescheduled|postponed|"
    r"became|become|slipped|delayed|ended up|(?:fell|climbed|jumped|crept|shot|came down|come down|cut|down|"
    r"up) (?:to|at)|"
    r"(?:is|are|am|'m|'re|'s) (?:up|down) (?:to|at)|as of|another|ahora|actual|subio|subido|bajo|bajado|aumento|"
    r"aumentado|"
    r"ampliado|reducido|mejorado|nuevo|nueva|hemos pasado|ha pasado|ultimamente|aplazado|retrasado|"
    r"adelantado|movido|pasado a|cambiado|recortado|rebajado|ya (?:son|somos|es|llevo|tengo|van|hay))\b"
)
FOLLOWING = re.compile(
    r"\b(?:(?:how|what) about|another (?:one|place|option)|others?|else|que tal|otr[oa]s?|y si|(?:is|are) there|"
    r"do you have|ones)\b|^\W*(?:y (?:en|a|al|el|la|los|las|para|desde|hacia|con|de)\b(?=[^,.]{1,30}$)|"
    r"what (?:does|do) \w+(?: \w+)? have\b)"
)
WANTING = re.compile(
    r"\b(?:please|(?:would|might|will|'d) be (?:better|best|nicer)|i(?:'d| would)? (?:prefer|rather|like|want|need)|"
    r"(?:search|look) for|show me|find me|let me|give me|i(?:'ll| will) (?:take|have|go)|we (?:want|need)|make sure|"
    r"por favor|prefiero|preferiria|quiero|busca\w*|ensename|muestrame|ponme|dame)\b|^\W*(?:try|find|get|pick|"
    r"choose|something|somewhere|anything|algo)\b"
)
"""What asks for something to be so."""
ANOTHER = re.compile(
    r"^\W*(?:set|add|book|create|make|schedule|pon|crea|reserva) (?:up )?(?:another|otr[oa])\b|"
    r"^\W*(?:i|we)(?: have|'ve got| got) an? \w+ (?:at|on)\b|^\W*(?:tengo|tenemos) una? \w+ (?:a|el)\b|"
    r"\b(?:also|additionally|as well|too|a second|in addition|besides|tambien|ademas|otro mas|aparte|(?:both|ambos))\b"
)
HEDGED = re.compile(
    r"\b(?:maybe|perhaps|might|not sure|possibly|i guess|undecided|either|quiza|quizas|tal vez|a lo mejor|puede que|"
    r"posiblemente|no se si|igual|no estoy segur\w)\b"
)
_PARTS = (
    "chapter|part|phase|section|act|season|episode|building|group|question|problem|capitulo|parte|fase|seccion|"
    "temporada"
)
ORDINAL = re.compile(
    rf"\b(?:{_PARTS}) (?:\d+|one|two|three|four|five|uno|dos|tres|cuatro|cinco)\b|"
    r"\b(?:first|second|third|fourth|fifth|last|primer[oa]?|segund[oa]|tercer[oa]?|cuart[oa]|quint[oa]|ultim[oa])\b"
)
_UNIQUE = (
    "capital|author|founder|leader|president|king|queen|director|currency|language|religion|name|title|aim|goal|"
    "origin|"
    "cause|birthplace|hero|main|only|largest|biggest|smallest|first|last|father|mother|wife|husband|autora?|"
    "fundadora?|"
    "lider|presidente|rey|reina|directora?|moneda|idioma|lengua|nombre|titulo|objetivo|origen|causa|protagonista|"
    "principal|unic[oa]|mayor|menor|primer[oa]?|ultim[oa]|padre|madre|esposa|mujer|marido"
)
FORMER = re.compile(
    r"\b(?:my|our|his|her|mis?|nuestr[oa]s?) (?:first|old|former|previous|ex|last|next|other|primer[oa]?|"
    r"antigu[oa]|anterior|"
    r"ultim[oa]|otr[oa]|proxim[oa])\b"
)
UNIQUE = re.compile(
    rf"^\W*(?:the|its|his|her|el|la|su) (?:\w+ )?(?:{_UNIQUE})\b.*\b(?:is|was|are|were|es|era|fue|son|eran|fueron)\b|"
    r"\b(?:(?:nace|nacio|nacieron|murio|murieron|desemboca|desembocan|fallecio|proceden?|pertenecen?|"
    r"originari[oa]) (?:en|de|a)|"
    r"(?:rises?|flows?|lies|lie|located|situated|based|originat\w+|died|born|buried) (?:in|into|at|near|from)|"
    r"(?:se encuentran?|situad[oa]s?|ubicad[oa]s?|enterrad[oa]s?|sepultad[oa]s?) en|"
    r"belongs? to|named after|owned by|(?:escrit|compuest|pintad|dirigid|fundad|construid|disenad|inventad|"
    r"descubiert)[oa]s? por|(?:written|composed|painted|directed|founded|built|designed|invented|discovered|"
    r"created) by)\b"
)
"""What is one thing only, of whatever it is said."""
ONCE_ONLY = re.compile(
    r"\b(?:born|died|founded|built|published|released|premiered|opened|abolished|signed|invented|discovered|"
    r"elected|crowned|"
    r"independence|independencia|nacio|murio|fallecio|fundad[oa]|fundo|construy\w+|construid[oa]|public\w+|estren\w+|"
    r"inaugur\w+|aboli\w+|firm(?:o|aron|ad[oa])|invent\w+|descubri\w+|descubiert[oa]|coronad[oa]|elegid[oa]|empezo|"
    r"comenzo|began|started|ended|termino|acabo|finaliz\w+|proclam\w+|estallo|broke out|cre(?:o|ad[oa])|lanz(?:o|"
    r"ad[oa]))\b"
)
"""What happens once to whatever it happens to."""
NOT_EVERY = re.compile(
    r"\bnot (?:\w+ )?(?:all|every\w*|always|both)\b|\b(?:no|ni) (?:\w+ ){0,3}(?:todos|todas|siempre)\b|"
    r"\b(?:some|algun[oa]s)\b.*\b(?:not|no)\b"
)
EVERY = re.compile(r"\b(?:every|everyone|everybody|everything|all|always|both|todos|todas|siempre|cada)\b")
THEN = re.compile(
    r"\b(?:last (?:week|night|month|year|time|summer|winter|weekend)|yesterday|this (?:morning|time|week)|"
    r"tonight|ayer|anoche|"
    r"esta vez|la semana pasada|el (?:mes|ano|fin de semana) pasado)\b"
)
"""What makes a denial hold once."""
TIMES = re.compile(
    r"\b(?:siglo \w+|\w+ century|durante|during|antes|before|despues|after(?! all)|hasta|until|till|desde|since|hoy|"
    r"today|actualmente|nowadays|entonces|originalmente|originally|(?:edad|epoca) \w+|middle ages|al principio|"
    r"at first|adult[oa]s?|joven|de nino|later|posteriormente|mas tarde)\b"
)
"""What says when something was."""
DESCRIBED = re.compile(
    r"(?:\b(?:is|are|was|were|am|looks?|es|son|era|eran|fue|esta|estan|soy|estoy)|'m|'re) (?:(?:so|very|too|"
    r"really|pretty|"
    r"quite|just|such|an?|the|absolutely|always|still|muy|tan|un|una|siempre|bastante) )*(?P<x>[a-z]+)"
)
"""What something is said to be."""
PASSIVE = re.compile(r"\b(?:was|were|is|are|been|fue|fueron|es|son|sido|ha sido) .*\b(?:by|por)\b")
REPLACED = re.compile(
    r"\b(?:instead of|rather than|(?:rather|prefer) [^,.;]{2,40}? than|in place of|no longer|(?:stop|stopped|"
    r"quit) (?:using|going to|doing|eating|drinking|[a-z]+ing)|(?:drop|ditch)(?=[^.]*\b(?:use|switch|instead|"
    r"go with)\b)|quit|gave up|given up|"
    r"en vez del?|en lugar del?|ya no|deja(?:r|mos)?(?: de)?|dejo(?: de)?|abandona\w*)\s+(?P<x>[^,.;!?]{2,50})"
)
NOT_THAT = re.compile(
    r"^\W*(?:and |y )?(?:not|no) (?:(?:in|with|the|an?|en|con|el|la|un|una) )*(?P<x>\w+(?: \w+)?)\W*$"
)
"""What stands behind a choice, as what it is not: `in Kotlin, not Java`."""
REPLACED_ENDS = re.compile(r"\b(?:and|use|but|so|for|y|haz|usa|pero|para|que|with|con|now|ahora)\b.*$")
CONFIRMING = re.compile(
    r"\b(?:confirm\w*|correct|right(?=\?)|verify|to review|just to|you(?:'d| would) like|you want|you wish|"
    r"shall i|is that|is this|so you|is it okay|confirmo|confirma\w*|correcto|quieres|desea\w*|de acuerdo|make sure|"
    r"ensure)\b"
)
FAILED = re.compile(
    r"\b(?:could not|unable|unfortunately|was not able|not possible|not available|unavailable|no tables?|failed|"
    r"no pude|"
    r"no he podido|no ha sido posible|no fue posible|no hay|no quedan|fully booked|sold out|agotad\w+|completo)\b"
)
_ASKED = (
    ("date", r"when|what day|which day|which date|what date|date|days|from what|cuando|que dia|fecha"),
    ("time", r"what time|time|when|hora"),
    ("count", r"how many|number of|how long|cuant[oa]s|duration"),
    ("money", r"how much|amount|cuanto|budget|presupuesto|importe"),
    ("place", r"where|which city|what city|city|area|location|from which|donde|ciudad|zona"),
)
ASKED = tuple((kind, re.compile(rf"\b(?:{words})\b")) for kind, words in _ASKED)
"""What an assistant asks for when it does not know it yet."""

NEARLY = re.compile(
    r"\b(?:more than|less than|fewer than|at least|at most|over|under|up to|nearly|almost|about|around|roughly|"
    r"mas de|menos de|al menos|como minimo|como maximo|casi|cerca de|alrededor de|unos|unas|hasta|entre|"
    r"between) [$€£]?(?:los |las )?"
    r"(?:\d|[a-z]+ (?:mil|cientos|thousand|hundred|million))"
)
"""What gives a number as a bound or about."""
RESTRICTED = re.compile(
    r"\b(?:before|until|after(?! all)|except|besides|other than|only|unless|antes de|hasta|despues de|salvo|excepto|"
    r"mas que|mas de|more than|less than|por primera vez|for the first time|menos|with me|right now|"
    r"at the moment|yet|for now|handy|ahora mismo|de momento|a mano|aun|"
    r"todavia)\b"
)
"""What makes a negation hold for a part only."""

_KIN = (
    "wife|husband|mother|father|sister|brother|son|daughter|friends?|boss|colleagues?|neighbou?rs?|cousins?|aunt|"
    "uncle|"
    "grandmother|grandfather|girlfriend|boyfriend|partner|children|parents?|team|manager|roommate|flatmate|teacher|"
    "doctor|client|customer"
)
_PARIENTES = (
    "mujer|esposa|marido|esposo|madre|padre|hermana|hermano|hij[oa]s?|amig[oa]s?|jef[ea]|companer[oa]s?|vecin[oa]s?|"
    "prim[oa]s?|tia|tio|abuel[oa]s?|novi[oa]|pareja|padres|equipo|profesora?|cliente|medic[oa]"
)
PEOPLE = re.compile(
    rf"(?<!like )\b(?:(?:my|our|his|her|their|the) (?:\w+ )?(?P<x>{_KIN})|"
    rf"(?:mis?|nuestr[oa]s?|sus?|el|la|los|las) (?:\w+ )?(?P<z>{_PARIENTES}))\b(?! (?:is|are)? ?(?:called|named))|"
    r"^\W*(?:(?:and|but|y|pero) )?(?P<y>he|she|they|ella|ellos|ellas) (?=\w+s\b|is\b|are\b|was\b|has\b|"
    r"have\b|does\b|never\b|always\b|[a-z]+e\b|[a-z]+a\b)"
)
"""Others that a clause is about."""
