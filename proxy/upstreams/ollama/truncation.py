"""Whether a server cut a prompt without a word: Ollama drops old messages, or a long one's middle, and answers 200."""

from proxy.context import TokenCount

SURE, UNSURE = 0.9, 0.6
"""The share of our count of a prompt that the server must have evaluated: with the model's own tokenizer, and where we
estimate. Estimates are 10 to 30 % off, and templates leave out parts of tool schemas. A single long message is cut to
about half the window; dropped messages may leave any share, so a cut that leaves more than this goes unnoticed."""

LIKELY = 0.75
"""The share of the window that a prompt has by our count before it is suspected: estimates are no further off."""

SMALLEST = 1024
"""The same in tokens where the window is not known: no Ollama runs a model with less than 2048 unless told to."""


def may_be_truncated(size: int, window: int | None) -> bool:
    """Return whether a body of so many bytes can be a prompt that is suspected: no token has less than a byte."""
    return size > _suspected(window)


def was_truncated(counted: TokenCount | None, evaluated: int, window: int | None) -> bool:
    """Return whether far fewer tokens were evaluated than were sent.

    `counted` is our count of the prompt, None where there is none to compare with; `evaluated` the server's, 0 where it
    is unknown; `window` the model's, None where it is unknown. Prompts from Ollama's own cache count as evaluated.
    """
    if counted is None or not evaluated:
        return False
    suspected = counted.total > _suspected(window)
    return suspected and evaluated < counted.total * (SURE if counted.exact else UNSURE)


def ran_full(evaluated: int, answered: int, window: int | None, limit: int | None) -> bool:
    """Return whether prompt and answer fill the window to the last token, and the answer is not as long as it was to
    be.

    Then the prompt left too little room: the answer broke off, or pushed the beginning of the prompt out.
    """
    return bool(evaluated and answered) and evaluated + answered == window and answered != limit


def _suspected(window: int | None) -> float:
    """Return the tokens from which on a prompt is suspected."""
    return SMALLEST if window is None else window * LIKELY
