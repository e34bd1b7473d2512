"""Compact forms: what stands in for a large text that was read once. Pure functions of the text."""

from proxy.forms.arguments import payloads, with_payloads
from proxy.forms.callers import arguments_of, callers
from proxy.forms.cut_json import json_value
from proxy.forms.envelopes import unwrapped
from proxy.forms.form import Form, compact, condensed
from proxy.forms.headline import headline
from proxy.forms.html import readable
from proxy.forms.json_values import minified, rendered
from proxy.forms.marker import MARKER_TOKENS, is_shortened, is_to_fit, marked_handle, reference, shortened
from proxy.forms.prose import parts
from proxy.forms.texts import Text, texts_of, with_text
from proxy.forms.treatment import Treatment, treated
from proxy.forms.weight import weight

__all__ = [
    "MARKER_TOKENS",
    "Form",
    "Text",
    "Treatment",
    "arguments_of",
    "callers",
    "compact",
    "condensed",
    "headline",
    "is_shortened",
    "is_to_fit",
    "json_value",
    "marked_handle",
    "minified",
    "parts",
    "payloads",
    "readable",
    "reference",
    "rendered",
    "shortened",
    "texts_of",
    "treated",
    "unwrapped",
    "weight",
    "with_payloads",
    "with_text",
]
