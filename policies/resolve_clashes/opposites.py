"""Words that say the opposite of each other, in English and Spanish. Pure.

A word stands in front of its opposites; all forms that have the same stem as a word are taken for it.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from policies.resolve_clashes.terms import stem

_WORDS = """
accept reject, refuse, decline; accepted rejected, refused, declined; love hate, dislike, loathe; like hate, dislike,
loathe; enjoy hate, dislike, loathe, boring; adore hate; fun boring; easy hard, difficult; cheap expensive; early
late; open closed; opened closed; win lose; won lost; alive dead; inside outside; indoors outdoors; before after;
first last; increase decrease; increased decreased; rise fall; rose fell; raise lower; raised lowered; more less,
fewer; most fewest; always never, rarely, seldom; often rarely, seldom, never; everyone nobody; everybody nobody;
everything nothing; all none; possible impossible; legal illegal; safe dangerous, unsafe, danger, risky; small big,
large, huge, enormous; tiny huge, big, large; dead living, alive; died alive, lives; healthy unhealthy, sick; happy
sad, unhappy; rich poor; strong weak; hot cold; warm cold; light heavy; married single, divorced; true false; correct
wrong, incorrect; right wrong; success failure; succeeded failed; passed failed; public private; north south; east
west; left right; older younger; oldest youngest; bigger smaller; larger smaller; biggest smallest; largest smallest;
higher lower; highest lowest; better worse; best worst; buy sell; bought sold; borrow lend; push pull; include
exclude; included excluded; agree disagree; support oppose; supports opposes; allow forbid, ban, prohibit; allowed
forbidden, banned, prohibited; enable disable; enabled disabled; start stop, finish; begin end; began ended; employed
unemployed; responsible irresponsible; friend enemy; day night; summer winter; permanent temporary; voluntary
compulsory, mandatory; optional required, mandatory; full empty; clean dirty; quiet noisy, loud; near far; introvert
extrovert; male female; guilty innocent; present absent; remembered forgot; remember forget; up down; indoor outdoor;
single double; simple doble; simples dobles; manual automatic; automatico manual; free paid; gratis pago; serious
funny; serio divertido; left-handed right-handed; online offline; refundable nonrefundable; interior exterior;
interesting boring, uninteresting; good bad, terrible, awful; majority minority; great terrible, awful; aceptar
rechazar; aceptadas rechazadas; aceptado rechazado; aceptada rechazada; aceptados rechazados; acepto rechazo; subido
bajado; subieron bajaron; aumentado disminuido; mejorado empeorado; ganado perdido; aprobada rechazada, denegada;
aprobado rechazado, denegado; aprobo rechazo, denego; admitido expulsado; encendido apagado; empezado terminado;
vendido comprado; amar odiar; amo odio; gusta odio, disgusta, desagrada; gustan odio, disgustan; encanta odio,
disgusta, detesto; encantan odio, detesto; facil dificil; barato caro; barata cara; temprano tarde; abierto cerrado;
abierta cerrada; ganar perder; gano perdio, pierdo; ganaron perdieron; vivo muerto; viva muerta; dentro fuera; antes
despues; primero ultimo; primera ultima; primer ultimo; aumento disminuyo, bajo; aumentar disminuir, reducir;
aumentaron disminuyeron; subio bajo; subir bajar; mas menos; siempre nunca, jamas; todos ninguno, nadie; todas
ninguna; todo nada; posible imposible; legal ilegal; seguro peligroso; sano enfermo; feliz triste; rico pobre; fuerte
debil; caliente frio; casado soltero, divorciado; casada soltera, divorciada; verdadero falso; verdadera falsa; exito
fracaso; aprobo suspendio; aprobado suspendido; publico privado; publica privada; norte sur; este oeste; izquierda
derecha; mayor menor; mayores menores; mejor peor; comprar vender; compro vendio; compraron vendieron; incluido
excluido; incluye excluye; permitir prohibir; permitido prohibido; permite prohibe; permitida prohibida; activar
desactivar; empezar terminar, acabar; empezo termino, acabo; comenzo termino, acabo, finalizo; inauguracion clausura;
inicio fin; comienzo fin; amigo enemigo; amiga enemiga; dia noche; verano invierno; permanente temporal; obligatorio
opcional, voluntario; obligatoria opcional, voluntaria; lleno vacio; limpio sucio; cerca lejos; mayoria minoria;
descentralizado centralizado; enciende apaga; encendio apago; encender apagar; encienda apague; apoyar oponerse;
apoyaron criticaron, rechazaron; participar abandonar; volvio dejo; continuo abandono, dejo; continuar abandonar;
exclusivamente tambien; unico varios; unica varias; hombres mujeres; hombre mujer; poderoso debil; aliado enemigo;
victoria derrota; strengthen weaken; create destroy; protect endanger; benefit harm; help harm, hurt; hire fire;
arrest release; gain lose; arrive depart; enter exit; tall short; young old; fast slow; long short; deep shallow; wide
narrow; thick thin; hard soft; sweet bitter; sour sweet; wet dry; peace war; rural urban; ancient modern; ally enemy;
victory defeat; improve worsen; improved worsened; positive negative; internal external; inner outer; maximum minimum;
upper lower; simple complex, complicated; natural artificial; truth lie; asset liability; hero villain; winner loser;
supporter opponent; praise criticize, criticise, condemn; encourage discourage; upgrade downgrade; expand shrink;
attack defend; built demolished; smart dumb, stupid, dull; clever stupid; beautiful ugly; generous stingy; brave
coward, cowardly; shy outgoing; lazy hardworking; fat thin, skinny; vertical horizontal; frozen fresh; saved wasted;
grant deny; granted denied; legalize ban; accept deny; confirm deny; confirmed denied; excellent terrible, awful,
horrible; delicious disgusting; relaxing stressful; exciting boring; loved hated; domestic foreign; innocent culpable;
teach learn; absent attended; rare common; rarely usually, frequently; usually never; daily never; frequently seldom;
nobody all, many, people; everyone none; some none; fortalece debilita; fortalecer debilitar; crea destruye; crear
destruir; creo destruyo; protege amenaza; alto bajo; alta baja; rapido lento; largo corto; larga corta; ancho
estrecho; duro blando; dulce amargo; seco humedo; joven viejo, anciano; antiguo moderno; antigua moderna; rural
urbano; profundo superficial; entrar salir; paz guerra; mejora empeora; mejorar empeorar; mejoro empeoro; beneficia
perjudica; beneficioso perjudicial, danino; positivo negativo; positiva negativa; interno externo; superior inferior;
maximo minimo; simple complejo, complicado; verdad mentira; masculino femenino; ricos pobres; apoyo rechazo, critica;
apoya rechaza, critica; construyo derribo; atacar defender; ataco defendio; contrato despidio; detener liberar; detuvo
libero; gano perdio; gana pierde; sube baja; crecio cayo, bajo, disminuyo; aumenta disminuye; compra vende; todos
ningun; siempre raramente; fiel infiel; vivos muertos; guapo feo; listo tonto; limpia sucia; vacia llena; autorizo
prohibio; autoriza prohibe; confirmo desmintio, nego; confirma desmiente, niega; exporta importa; frio calor; nuevo
viejo; derecho izquierdo; horizontal vertical; valiente cobarde; generoso tacano; trabajador vago; delgado gordo; amor
odio; acierto error; culpable inocente; presente ausente; ganador perdedor; delicioso asqueroso; divertido aburrido;
interesante aburrido; emocionante aburrido; relajante estresante; nadie todos, muchos, muchas; nada mucho, todo;
barato carisimo; kept broke, broken; keep break; keeps breaks; gone come; healthy ill; fresh rotten, stale; friendly
hostile, unfriendly, mean; polite rude; calm angry, nervous, stressed; tidy messy; honest dishonest; patient
impatient; lucky unlucky; famous unknown; awake asleep; dark bright, light; loose tight; smooth rough; sharp blunt;
blonde brunette, bald; thrilled disappointed; exciting dull, tedious; thrilling dull, boring; fascinating boring,
dull; amazing terrible, awful, boring; wonderful awful, terrible, horrible; fantastic awful, terrible; gorgeous ugly;
tasty disgusting, gross, bland; nice awful, horrible, mean, nasty; fascinated bored; excited nervous, bored; confident
insecure, nervous; united divided, split; kind cruel; humble arrogant; optimistic pessimistic; optimist pessimist;
trust distrust, mistrust; respect despise; hope fear; hopeful hopeless; trivial important; important unimportant,
irrelevant; relevant irrelevant; useful useless; helpful useless, harmful; harmless harmful, dangerous; beneficial
harmful; effective ineffective, useless; efficient wasteful; fair unfair, unjust; just unjust; moral immoral;
reasonable ridiculous, unreasonable, absurd; sensible foolish, silly; wise foolish; popular unpopular; certain
uncertain; clear unclear, vague; stable unstable, volatile; secure insecure, vulnerable; solved unsolved; known
unknown; visible invisible, hidden; real fake, imaginary; original copy; failing thriving; struggling thriving; denied
admitted; denies admits; admit deny; cut raise; cuts raises; add remove; added removed; adding removing; install
uninstall; installed uninstalled; connected disconnected; merged reverted; approve reject, disapprove; approved
rejected, declined, denied; hired fired; promoted demoted, fired; joined left, quit; join leave, quit; stay leave;
stayed left; staying leaving; found lost; find lose; spend save; spent saved; earn lose; grow shrink; grew shrank;
gained lost; appear disappear; appeared disappeared; finished started; starts ends; caught missed; catch miss; passing
failing; gather scatter; combine separate; combined separate; shared separate, private; mandatory optional, voluntary;
required optional; active inactive; upstairs downstairs; top bottom; above forwards backwards; northern southern;
eastern western; daytime nighttime; vacant occupied; asleep awake; amateur professional; beginner expert; novice
expert; citizen foreigner; renting own; rent own; gentle rough; obey disobey; obeyed disobeyed; sunny rainy, cloudy;
rainy dry; crowded empty, deserted; spicy mild; raw cooked; alive deceased; alone together; single engaged; healthy
unwell; literate illiterate; tolerate ban; welcomed rejected; defended attacked, criticized, criticised; praised
criticized, criticised, condemned; backed opposed, rejected; supported opposed, rejected; favour oppose; favor oppose;
favors opposes; caused prevented; causes prevents; cause prevent; continue stop; continued stopped; survived died,
perished; unify divide; unite divide; united separated; freed captured, imprisoned; conquered lost; independent
dependent; winning losing; abundant scarce; plenty scarce, shortage; shortage surplus; deficit surplus; export import;
exports imports; exported imported; ascend descend; ascended descended; earliest latest; longest shortest; tallest
shortest; fastest slowest; cheapest expensive; hottest coldest; deepest shallowest; strongest weakest; richest
poorest; happier sadder; longer shorter; taller shorter; faster slower; cheaper dearer; stronger weaker; easier
harder; hotter colder; warmer colder, cooler; heavier lighter; closer farther, further; nearer farther; elogiaron
despreciaron, criticaron; elogio desprecio, critico; elogia critica; alabaron criticaron; alabo critico; abrio cerro;
abrieron cerraron; abren cierran; abre cierra; abrir cerrar; unir separar; une separa; unen separan; unieron
separaron; junto separado; juntos separados; unido dividido; unidos divididos; tardio temprano; tardia temprana;
viejos jovenes; ancianos jovenes, ninos; adultos ninos, menores; humedo arido; humeda seca; secos humedos; frio
calido; fria calida; caluroso frio; pobres ricos; pobreza riqueza; pobre rico, adinerado; prospero pobre; guerra paz;
amigos enemigos; aliados enemigos, rivales; aliaron enfrentaron; enemistad amistad; conocido desconocido; conocida
desconocida; famoso desconocido; famosa desconocida; visible invisible, oculto; util inutil; capaz incapaz; justo
injusto; justa injusta; legitimo ilegitimo; regular irregular; directo indirecto; directa indirecta; dependiente
independiente; independencia dependencia; democracia dictadura; democratico dictatorial; libertad esclavitud,
opresion; libre preso, esclavo; libero encarcelo; absuelto condenado; absolvio condeno; defendio ataco, critico;
defiende ataca, critica; defensor detractor, enemigo; partidario detractor, contrario; favor contra; apoyo opuso;
apoyaba oponia, rechazaba; apoyaron opusieron; permitio impidio, prohibio; permite impide; permitieron impidieron,
prohibieron; facilita dificulta, impide; facilito dificulto, impidio; favorece perjudica; fomenta frena, impide;
fomento freno; causo evito; provoco evito; provoca evita; acepto nego; aceptaron negaron; admitio nego; admite niega;
afirmo nego; recordo olvido; recuerda olvida; encontro perdio; aparecio desaparecio; aparece desaparece; aparecieron
desaparecieron; entro salio; entra sale; entraron salieron; ingreso abandono; subida bajada; ascenso descenso, caida;
ascendio descendio; crecio decrecio, cayo, disminuyo; crece decrece, disminuye; crecimiento descenso, disminucion,
caida; crecieron disminuyeron, cayeron; aumento descenso, disminucion, caida, reduccion; aumenta reduce, cae; aumento
redujo; aumentaron redujeron; amplio redujo; ampliar reducir; agrando redujo; mejoria empeoramiento; enriquecio
empobrecio; fortalecio debilito; cobro pago; gasto ahorro; gastar ahorrar; prestar devolver; concedio denego, retiro;
conceder denegar; nombro destituyo; nombrado destituido; coronado derrocado; construyeron derribaron, destruyeron;
construir derribar, destruir; construido derribado, destruido; construida derribada, destruida; fundo disolvio;
fundado disuelto; creado disuelto, destruido; nacio murio; nacimiento muerte; mujeres hombres; femenina masculina;
macho hembra; norteno sureno; septentrional meridional; oriental occidental; orientales occidentales; delante detras;
arriba abajo; encima debajo; anterior posterior; anteriormente posteriormente; inicial final; principio final;
comienza termina, acaba; empieza termina, acaba; comenzaron terminaron; inauguro clausuro; inaugurado clausurado;
inaugurada clausurada; minimo maximo; minima maxima; pequeno grande, enorme; pequena grande, enorme; gran pequeno;
enorme diminuto; largo breve; extenso breve; ligero pesado; lenta rapida; lentamente rapidamente; claro oscuro; clara
oscura; blando duro; fino grueso; suave aspero; salado dulce; crudo cocinado; fresco podrido; comestible venenoso;
inofensivo peligroso; peligrosa segura, inofensiva; segura peligrosa, insegura; potable contaminada; natural
sintetico; voluntario forzoso, obligatorio; gratuito pagado; gratuita cara; asequible caro, carisimo; local
extranjero; nacional extranjero, internacional; urbana rural; religioso laico; religiosa laica; catolico protestante;
monarquia republica; rey plebeyo; noble plebeyo; diurno nocturno; diurnos nocturnos; diurna nocturna; terrestre
acuatico, marino; carnivoro herbivoro; carnivoros herbivoros; domestico salvaje; domesticos salvajes; consiguio
fracaso; logro fracaso; exitosa fracasada; exitoso fracasado; triunfo derrota, fracaso; triunfar fracasar; vencio
perdio; vencedor vencido, perdedor; invicto derrotado; unanime dividido; mayoritario minoritario; mayoritaria
minoritaria; abundante escaso; abundantes escasos; abundancia escasez; frecuentemente raramente; nunca diariamente;
habitual inusual, raro; optimista pesimista; introvertido extrovertido; timido extrovertido; tranquilo nervioso;
contento triste, enfadado; alegre triste; orgulloso avergonzado; educado maleducado; amable antipatico, cruel;
simpatico antipatico; sincero mentiroso; honesto deshonesto, corrupto; ordenado desordenado; aprobaron suspendieron,
rechazaron; suspendieron aprobaron; admitida rechazada; publicos privados; alegria tristeza; amaba odiaba; quiere
odia; adora detesta, odia; acuerdo desacuerdo; coincidieron discreparon; continuo interrumpio; siguio dejo, abandono;
conservo perdio; mantuvo perdio, abandono; permanecio abandono; quedo marcho; encanta aburre; excelente pesimo,
horrible; comun raro; frecuente raro;
"""
_PREFIXED = re.compile(r"(?:un|in|im|ir|il|dis|des|non)(?P<x>[a-z]{4,})")
"""What may be another word with a denying prefix."""


def _read(lines: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in lines.split(";"):
        if not line.strip():
            continue
        word, *others = map(stem, line.replace(",", " ").split())
        for other in others:
            found.setdefault(word, set()).add(other)
            found.setdefault(other, set()).add(word)
    return {word: frozenset(others - {word}) for word, others in found.items()}


_OPPOSITES = MappingProxyType(_read(_WORDS))


def with_opposites(stems: Mapping[str, str]) -> frozenset[str]:
    """Those words of which there are opposites; `stems` has the stem of each word."""
    return frozenset(word for word, its in stems.items() if its in _OPPOSITES)


def counterparts(words: frozenset[str]) -> frozenset[str]:
    """The stems of the opposites of words that have some."""
    return frozenset().union(*(_OPPOSITES[stem(word)] for word in words))


def opposed(old: frozenset[str], new: frozenset[str]) -> tuple[str, str] | None:
    """A word of the first and its opposite among the second; None where there is none, or both stand on both sides."""
    mine, theirs = frozenset(map(stem, old)), frozenset(map(stem, new))
    for word in sorted(old):
        for other in sorted(new):
            if stem(other) not in _OPPOSITES[stem(word)]:
                continue
            if stem(word) not in theirs and stem(other) not in mine:
                return word, other
    return None


def with_prefixes(words: list[str]) -> frozenset[tuple[str, str]]:
    """The stems of words that may have a denying prefix, and the stems of what is left without it."""
    matches = [match for match in map(_PREFIXED.fullmatch, words) if match]
    return frozenset((stem(match[0]), stem(match["x"])) for match in matches)
