"""Whether a text has to do with what asked for it, by the words that they share."""

from policies.validate_content.content import Finding
from proxy.text.bm25 import terms
from proxy.text.glossary import english
from proxy.text.language import language

_READ = 20_000
_FEWEST = 40
"""Different terms of a text that is long enough to judge; an id or a number need not repeat the question."""
_ASKED = 4
"""Different terms of a question that says enough."""
_QUERY = 4000


def relevance(text: str, query: str) -> Finding | None:
    """1 - 0.3^n, where n is how many different terms of the question stand in the text: 0, 0.7, 0.91, 0.97 and so on.

    So one term is enough for 0.7: a text that answers a question may share only one, but hardly any shares none. None
    where it cannot be told: a short text or question, or one that is in another language than the text.
    """
    query = query[:_QUERY]
    asked = _telling(f"{query} {english(query) or ''}")
    if len(asked) < _ASKED:
        return None
    found = _telling(text[:_READ])
    if len(found) < _FEWEST:
        return None
    hits = len(asked & found)
    if not hits and _differ(text, query):
        return None
    return Finding(round(1 - 0.3**hits, 6), "" if hits else "it shares no words with what asked for it")


def _telling(text: str) -> set[str]:
    return {term for term in terms(text) if len(term) > 2}


def _differ(text: str, query: str) -> bool:
    """Whether both may be about the same in different languages, or the text is in a script without spaces."""
    theirs = language(text)
    return theirs is None or language(query) not in (None, theirs)
