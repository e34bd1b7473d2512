"""In which language a text is, told by its most common words; only where that is beyond doubt. Pure."""

import re
from functools import cache
from importlib.resources import files

NAMES = {
    "de": "German",
    "en": "English",
    "es": "Spanish",
    "fr": "French",
    "it": "Italian",
    "pt": "Portuguese",
}
"""The languages that are told apart, and their names."""

_COMMON = {
    "de": "der die das und ist nicht ich sie wir ein eine einen mit für auf dem den von zu im auch wie oder aber wenn "
    "bei kann werden wird sind haben wurde nach noch nur über dass",
    "en": "the and is are was were of to in that it you this with for have be on not what which can will your from "
    "they would there their has had been but how do does please about if when",
    "es": "el la los las y un una es son de del en que no por para con como pero más está están se lo su al qué cuál "
    "puedo puede tengo tiene hay también cuando cómo dónde si mi me este esta muy fue ser",
    "fr": "le la les un une des et est sont de du en que qui ne pas pour dans avec sur mais plus vous nous je il elle "
    "ce cette au aux être avez votre mon peut comme",
    "it": "il lo la gli le un una è sono di del della in che non per con come ma più si mi ti ho hai ha nel alla "
    "anche questo questa puoi posso quando cosa",
    "pt": "os as um uma é são de do da em que não por para com como mas mais está você se no na ao eu meu "
    "minha também quando isso este esta muito foi ser pode tem",
}
_WORDS = {name: frozenset(words.split()) for name, words in _COMMON.items()}
_WORD = re.compile(r"[^\W\d_]+")
_QUOTED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`|https?://\S+|\"[^\"\n]*\"|«[^»\n]{0,400}»|“[^”\n]{0,400}”", re.DOTALL)
"""What may be in any language: code, addresses, quotations."""
_OWN = "="
_READ = 6000
_FEWEST = 4
"""The words of a language that have to be there."""
_SHARE = 0.2
"""The share of a text's words that they are at least: it is a third to a half in ordinary prose."""
_LEAD = 1.6
"""How many times as many there are as of any other language."""


def language(text: str) -> str | None:
    """The code of a text's language (`es`); None where it is none of `NAMES`, is too short, or is mixed."""
    words = [word.lower() for word in _WORD.findall(_QUOTED.sub(" ", text[:_READ]))]
    if len(words) < _FEWEST:
        return None
    counts = sorted(((sum(word in known for word in words), name) for name, known in _WORDS.items()), reverse=True)
    (most, name), (next_most, _) = counts[:2]
    if most < max(_FEWEST, _SHARE * len(words)) or most < _LEAD * next_most:
        return None
    return name


def named(text: str) -> frozenset[str]:
    """The codes of the languages that a text names; `?` is another language, `-` languages at large or translation.

    The user's own language is no other one: "answer in the user's language" names none.
    """
    codes, pattern = _named()
    return frozenset(codes[found.lastindex - 1] for found in pattern.finditer(text) if found.lastindex) - {_OWN}


@cache
def _named() -> tuple[list[str], re.Pattern[str]]:
    lines = files("proxy").joinpath("data/languages.txt").read_text(encoding="utf-8").splitlines()
    named = [line.split() for line in lines if not line.startswith("#")]
    groups = ("|".join(names) for _, *names in named)
    pattern = re.compile(rf"\b(?:{'|'.join(f'({group})' for group in groups)})\w{{0,2}}\b", re.IGNORECASE)
    return [code for code, *_ in named], pattern
