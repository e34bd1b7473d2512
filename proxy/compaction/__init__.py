"""Compact forms: what stands in for a large text that was read once. Pure functions of the text."""

from proxy.compaction.arguments import payloads, with_payloads
from proxy.compaction.callers import arguments_of, callers
from proxy.compaction.cut_json import json_value
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.form import Form, compact, condensed
from proxy.compaction.headline import headline
from proxy.compaction.html import readable
from proxy.compaction.prose import parts
from proxy.compaction.treatment import Treatment, treated
from proxy.compaction.weight import weight
from proxy.text.json_values import minified, rendered

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
