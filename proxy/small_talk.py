"""Whether a message only greets, thanks or passes the time: nothing that a tool could do. Pure."""

import re
import unicodedata

_ACCENTS = re.compile("[\u0300-\u036f]+")
_NO_WORD = re.compile(r"[\W_]+")
_LONGEST = 80
_PHRASES = """
hello; hi; hey; hi there; hello there; hey there; good morning; good afternoon; good evening; good night; good day;
howdy; how are you; how are you doing; how are you today; how is it going; hows it going; whats up; nice to meet you;
thanks; thank you; thank you very much; thank you so much; thanks a lot; many thanks; great; perfect; cool; nice;
awesome; ok; okay; bye; goodbye; bye bye; see you; see you later; have a nice day; have a good day; you too; welcome;
lol; haha; wow; hola; hola que tal; que tal; buenas; buenos dias; buen dia; buenas tardes; buenas noches; como estas;
como esta; como va; como te va; que tal estas; que hay; todo bien; gracias; muchas gracias; mil gracias;
muchisimas gracias; genial; perfecto; estupendo; vale; de acuerdo; adios; hasta luego; hasta pronto; chao; nos vemos;
que tengas un buen dia; igualmente; encantado; encantada; mucho gusto; jaja; jajaja
"""
_KNOWN = sorted((each.strip() for each in _PHRASES.split(";")), key=len, reverse=True)
_ALL = re.compile(rf"(?:(?:{'|'.join(_KNOWN)})(?: |$))*")


def is_small_talk(text: str) -> bool:
    """Whether a text has nothing but such phrases, in English or Spanish, or no word at all."""
    if len(text) > _LONGEST:
        return False
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.replace("'", "").replace("’", ""))).lower()
    return _ALL.fullmatch(_NO_WORD.sub(" ", plain).strip()) is not None
