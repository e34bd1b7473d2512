"""Compact forms: what stands in for a large text that was read once. Pure functions of the text."""

from proxy.forms.arguments import payloads, with_payloads
from proxy.forms.envelopes import unwrapped
from proxy.forms.form import Form, compact
from proxy.forms.html import readable
from proxy.forms.json_values import minified
from proxy.forms.marker import MARKER_TOKENS, is_shortened, reference, shortened
from proxy.forms.prose import parts
from proxy.forms.texts import Text, texts_of, with_text
from proxy.forms.treatment import Treatment, treated
from proxy.forms.weight import weight

__all__ = [
    "MARKER_TOKENS",
    "Form",
    "Text",
    "Treatment",
    "compact",
    "is_shortened",
    "minified",
    "parts",
    "payloads",
    "readable",
    "reference",
    "shortened",
    "texts_of",
    "treated",
    "unwrapped",
    "weight",
    "with_payloads",
    "with_text",
]
