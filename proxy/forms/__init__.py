"""Compact forms: what stands in for a large text that was read once. Pure functions of the text."""

from proxy.forms.arguments import payloads, with_payloads
from proxy.forms.callers import arguments_of, callers
from proxy.forms.cut_json import json_value
from proxy.forms.envelopes import unwrapped
from proxy.forms.form import Form, compact, condensed
from proxy.forms.headline import headline
from proxy.forms.html import readable
from proxy.forms.json_values import minified, rendered
from proxy.forms.prose import parts
from proxy.forms.treatment import Treatment, treated
from proxy.forms.weight import weight

__all__ = [
    "Form",
    "Treatment",
    "arguments_of",
    "callers",
    "compact",
    "condensed",
    "headline",
    "json_value",
    "minified",
    "parts",
    "payloads",
    "readable",
    "rendered",
    "treated",
    "unwrapped",
    "weight",
    "with_payloads",
]
