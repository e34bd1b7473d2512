"""What people have and do not have, in English and Spanish. Pure."""

import re
from collections.abc import Iterable

from policies.resolve_clashes.hints import hinted
from policies.resolve_clashes.terms import stem, telling, terms, words

_THING = r"([a-z]+(?: [a-z]+)?)"
_COUNTED = r"(?:an? |my |our |the |two |three |four |five |some |any |many |several |\d+ )"
_CONTADO = r"(?:un |una |dos |tres |cuatro |varios |varias |muchos |muchas |\d+ )"
_HOW = r"(?:[a-z]+ (?!(?:at|in|on|of|to|and|or|for|with|that|who|named|called|but)\b))?"
_LACKING = hinted(
    rf"\b(?:i|we) (?:do|did) not (?:currently |even |actually |really )?(?:have|own) {_COUNTED}?{_THING}|"
    rf"\b(?:i|we) (?:just |recently |have )*(?:sold|got rid of|gave away) (?:my |our |the ){_THING}|"
    rf"\b(?:vendi|he vendido|vendimos|hemos vendido) (?:el |la |los |las |mis? ){_THING}|"
    rf"\b(?:i|we)(?:'ve| have)? (?:never (?:had|owned)|have no|had no) {_COUNTED}?{_THING}|"
    rf"\b(?:no (?:tengo|tenemos)|(?:nunca|jamas) (?:he|hemos) tenido) (?:ningun |ninguna )?{_THING}"
)
_HAVING = hinted(
    rf"\b(?:i|we)(?:'ve)? (?:just |recently |also |already )?(?:have|own|got|have got|adopted|bought|had) "
    rf"{_COUNTED}{_HOW}{_THING}|\b(?:my|our) (?:two |three |new |old )?{_THING}|"
    rf"\b(?:i|we)(?:'ve)? have (?:[a-z0-9]+ ){{2,5}}and {_COUNTED}{_HOW}{_THING}|"
    rf"(?<!no )\b(?:tengo|tenemos|(?:acabo|acabamos) de (?:comprar|adoptar)|he comprado|he adoptado) "
    rf"{_CONTADO}?{_THING}|\b(?:mi|mis|nuestr[oa]s?) {_THING}"
)


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


_NO_THINGS = _stems(
    "time idea problem question plan plans experience clue doubt choice preference money tiempo dinero ganas "
    "duda dudas "
    "opinion mind access lot anything nothing thing interest response answer information data file code budget reason "
    "issue way one prisa hambre sueno"
)
"""Stems of what nobody has for long, or that is no possession."""
_Kinds = tuple[tuple[str, frozenset[str]], ...]
_DOGS = "dog dogs puppy retriever poodle labrador terrier beagle bulldog chihuahua dachshund husky perro perra perros"
_KINDS_ALONE: _Kinds = (
    ("pet", _stems("pet pets mascota mascotas")),
    ("child", _stems("child children kid kids hijos")),
    ("sibling", _stems("sibling siblings hermanos")),
    ("dog", _stems("dog dogs perro perros")),
)
"""_Kinds of which one has none, by the words for all of a kind."""
_KINDS: _Kinds = (
    (
        "pet",
        _stems(f"pet pets {_DOGS} cat cats kitten hamster parrot rabbit gato gata gatos cachorro mascota loro conejo"),
    ),
    ("child", _stems("child children kid kids son sons daughter daughters baby hijo hija hijos hijas bebe")),
    ("sibling", _stems("sibling siblings brother brothers sister sisters hermano hermana hermanos hermanas")),
    ("dog", _stems(_DOGS)),
)
"""_Kinds of which one has something: who has a dog has a pet."""


def had(folded: str, begins: frozenset[str]) -> frozenset[str]:
    """The stems of what is had in a folded clause of these beginnings, and its kinds: of a dog, a pet."""
    return _things(_HAVING.finditer(folded, begins), folded, _KINDS)


def lacked(folded: str, begins: frozenset[str]) -> frozenset[str]:
    """The stems of what is not had."""
    return _things(_LACKING.finditer(folded, begins), folded, _KINDS_ALONE)


def _things(matches: Iterable[re.Match[str]], folded: str, kinds: _Kinds) -> frozenset[str]:
    """The stems of things that are had or not: the first two words of each, less what nobody has; and their kinds."""
    found = frozenset(stem(word) for match in matches for group in match.groups() if group for word in words(group))
    if not found:
        return found
    return (telling(found & terms(folded)) - _NO_THINGS) | {name for name, words in kinds if found & words}
