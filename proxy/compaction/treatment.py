"""All that is worked out about one large text, in one go: it is remembered by the text's content."""

from typing import NamedTuple

from proxy.compaction.envelopes import unwrapped
from proxy.compaction.form import compact
from proxy.compaction.weight import weight

_SHORTEST = 200
"""Below this many characters no text has a form."""


class Treatment(NamedTuple):
    """How a text is sent first, and what may stand for it once it was read."""

    sent: str | None
    """None where nothing can be taken out."""
    form: str | None
    """None where there is none that is shorter."""
    sent_tokens: int
    form_tokens: int
    """Of the form, or as it is sent first where there is none."""
    kept_tokens: int
    """At the beginning, where both are the same."""
    leaves_prose: bool
    """Whether the form leaves out prose."""


def treated(text: str) -> Treatment:
    """The treatment of a tool result. A pure function of it."""
    sent = unwrapped(text)
    form = compact(sent) if len(sent) >= _SHORTEST else None
    short = sent if form is None else form.text
    same = next((i for i, pair in enumerate(zip(sent, short, strict=False)) if pair[0] != pair[1]), len(short))
    return Treatment(
        sent=None if sent == text else sent,
        form=None if form is None else form.text,
        sent_tokens=weight(sent),
        form_tokens=weight(short),
        kept_tokens=weight(short[:same]),
        leaves_prose=form is not None and form.leaves_prose,
    )
