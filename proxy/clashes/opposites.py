"""Words that say the opposite of each other, in English and Spanish. Pure.

A word stands in front of its opposites; all forms that have the same stem as a word are taken for it.
"""

import re
from types import MappingProxyType

from proxy.clashes.terms import stem

_WORDS = """
accept reject, refuse, decline; accepted rejected, refused, declined; love hate, dislike, loathe; like hate, dislike,
loathe; enjoy hate, dislike, loathe, boring; adore hate; fun boring; easy hard, difficult; cheap expensive; early
late; open closed; opened closed; win lose; won lost; alive dead; inside outside; indoors outdoors; before after;
first last; increase decrease; increased decreased; rise fall; rose fell; raise lower; raised lowered; more less,
fewer; most fewest; always never, rarely, seldom; often rarely, seldom, never; everyone nobody; everybody nobody;
everything nothing; all none; possible impossible; legal illegal; safe dangerous, unsafe; healthy unhealthy, sick;
happy sad, unhappy; rich poor; strong weak; hot cold; warm cold; light heavy; married single, divorced; true false;
correct wrong, incorrect; right wrong; success failure; succeeded failed; passed failed; public private; north south;
east west; left right; older younger; oldest youngest; bigger smaller; larger smaller; biggest smallest; largest
smallest; higher lower; highest lowest; better worse; best worst; buy sell; bought sold; borrow lend; push pull;
include exclude; included excluded; agree disagree; support oppose; supports opposes; allow forbid, ban, prohibit;
allowed forbidden, banned, prohibited; enable disable; enabled disabled; start stop, finish; begin end; began ended;
employed unemployed; responsible irresponsible; friend enemy; day night; summer winter; permanent temporary; voluntary
compulsory, mandatory; optional required, mandatory; full empty; clean dirty; quiet noisy, loud; near far; introvert
extrovert; male female; guilty innocent; present absent; remembered forgot; remember forget; up down; indoor outdoor;
indoors outdoors; single double; simple doble; simples dobles; manual automatic; automatico manual; free paid; gratis
pago; serious funny; serio divertido; left-handed right-handed; online offline; refundable nonrefundable; interior
exterior; interesting boring, uninteresting; good bad, terrible, awful; majority minority; great terrible, awful;
aceptar rechazar; aceptadas rechazadas; aceptado rechazado; aceptada rechazada; aceptados rechazados; acepto rechazo;
subido bajado; subieron bajaron; aumentado disminuido; mejorado empeorado; ganado perdido; aprobada rechazada,
denegada; aprobado rechazado, denegado; aprobo rechazo, denego; admitido expulsado; encendido apagado; empezado
terminado; vendido comprado; amar odiar; amo odio; gusta odio, disgusta, desagrada; gustan odio, disgustan; encanta
odio, disgusta, detesto; encantan odio, detesto; facil dificil; barato caro; barata cara; temprano tarde; abierto
cerrado; abierta cerrada; ganar perder; gano perdio, pierdo; ganaron perdieron; vivo muerto; viva muerta; dentro
fuera; antes despues; primero ultimo; primera ultima; primer ultimo; aumento disminuyo, bajo; aumentar disminuir,
reducir; aumentaron disminuyeron; subio bajo; subir bajar; mas menos; siempre nunca, jamas; todos ninguno, nadie;
todas ninguna; todo nada; posible imposible; legal ilegal; seguro peligroso; sano enfermo; feliz triste; rico pobre;
fuerte debil; caliente frio; casado soltero, divorciado; casada soltera, divorciada; verdadero falso; verdadera falsa;
exito fracaso; aprobo suspendio; aprobado suspendido; publico privado; publica privada; norte sur; este oeste;
izquierda derecha; mayor menor; mayores menores; mejor peor; comprar vender; compro vendio; compraron vendieron;
incluido excluido; incluye excluye; permitir prohibir; permitido prohibido; permite prohibe; permitida prohibida;
activar desactivar; empezar terminar, acabar; empezo termino, acabo; comenzo termino, acabo, finalizo; inauguracion
clausura; inicio fin; comienzo fin; amigo enemigo; amiga enemiga; dia noche; verano invierno; permanente temporal;
obligatorio opcional, voluntario; obligatoria opcional, voluntaria; lleno vacio; limpio sucio; cerca lejos; mayoria
minoria; descentralizado centralizado; enciende apaga; encendio apago; encender apagar; encienda apague; apoyar
oponerse; apoyaron criticaron, rechazaron; participar abandonar; volvio dejo; continuo abandono, dejo; continuar
abandonar; exclusivamente tambien; unico varios; unica varias; hombres mujeres; hombre mujer; poderoso debil; aliado
enemigo; victoria derrota; strengthen weaken; create destroy; protect endanger; benefit harm; help harm, hurt; hire
fire; arrest release; gain lose; arrive depart; enter exit; tall short; young old; fast slow; long short; deep
shallow; wide narrow; thick thin; hard soft; sweet bitter; sour sweet; wet dry; peace war; rural urban; ancient
modern; ally enemy; victory defeat; improve worsen; improved worsened; positive negative; internal external; inner
outer; maximum minimum; upper lower; simple complex, complicated; natural artificial; truth lie; asset liability; hero
villain; winner loser; supporter opponent; praise criticize, criticise, condemn; encourage discourage; upgrade
downgrade; expand shrink; attack defend; built demolished; smart dumb, stupid, dull; clever stupid; beautiful ugly;
generous stingy; brave coward, cowardly; shy outgoing; lazy hardworking; fat thin, skinny; vertical horizontal; frozen
fresh; saved wasted; grant deny; granted denied; legalize ban; accept deny; confirm deny; confirmed denied; excellent
terrible, awful, horrible; delicious disgusting; relaxing stressful; exciting boring; loved hated; domestic foreign;
innocent culpable; teach learn; absent attended; rare common; rarely usually, frequently; usually never; daily never;
frequently seldom; nobody all, many, people; everyone none; some none; fortalece debilita; fortalecer debilitar; crea
destruye; crear destruir; creo destruyo; protege amenaza; alto bajo; alta baja; rapido lento; largo corto; larga
corta; ancho estrecho; duro blando; dulce amargo; seco humedo; joven viejo, anciano; antiguo moderno; antigua moderna;
rural urbano; profundo superficial; entrar salir; victoria derrota; paz guerra; mejora empeora; mejorar empeorar;
mejoro empeoro; beneficia perjudica; beneficioso perjudicial, danino; positivo negativo; positiva negativa; interno
externo; superior inferior; maximo minimo; simple complejo, complicado; natural artificial; verdad mentira; masculino
femenino; ricos pobres; apoyo rechazo, critica; apoya rechaza, critica; construyo derribo; atacar defender; ataco
defendio; contrato despidio; detener liberar; detuvo libero; gano perdio; ganaron perdieron; gana pierde; sube baja;
subieron bajaron; crecio cayo, bajo, disminuyo; aumenta disminuye; compra vende; todos ningun; todas ninguna; siempre
raramente; fiel infiel; vivos muertos; guapo feo; listo tonto; limpia sucia; vacia llena; autorizo prohibio; autoriza
prohibe; confirmo desmintio, nego; confirma desmiente, niega; exporta importa; frio calor; nuevo viejo; derecho
izquierdo; horizontal vertical; valiente cobarde; generoso tacano; trabajador vago; delgado gordo; amor odio; acierto
error; culpable inocente; presente ausente; ganador perdedor; delicioso asqueroso; divertido aburrido; interesante
aburrido; emocionante aburrido; relajante estresante; nadie todos, muchos, muchas; nada mucho, todo; barato carisimo;
encanta aburre; excelente pesimo, horrible; comun raro; frecuente raro;
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


def with_opposites(words: list[str]) -> frozenset[str]:
    """Those folded words of which there are opposites."""
    return frozenset(word for word in words if stem(word) in _OPPOSITES)


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
