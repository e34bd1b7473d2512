"""An estimate of a text's tokens that is the same everywhere and for good.

A decision that is replayed with every request may not hang on a tokenizer's calibration. Digits, punctuation and other
scripts take more tokens than prose, so characters alone would flatter a form that is all identifiers.
"""

from string import ascii_letters, digits

_LETTERS = ascii_letters.encode()
_DIGITS = digits.encode()
_SPACES = b" \t\r\n"


def weight(text: str) -> int:
    """About how many tokens a text has."""
    data = text.encode(errors="surrogatepass")
    letters = len(data) - len(data.translate(None, _LETTERS))
    figures = len(data) - len(data.translate(None, _DIGITS))
    spaces = len(data) - len(data.translate(None, _SPACES))
    other = len(text) - len(text.encode("ascii", "ignore"))
    signs = len(text) - letters - figures - spaces - other
    return int(letters / 4.8 + figures / 2.3 + spaces / 20 + signs / 1.6 + other / 1.4) + 1
