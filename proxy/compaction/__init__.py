"""Compact forms: what stands in for a large text that was read once. Pure functions of the text."""

from proxy.compaction.calls import arguments_of, callers, payloads, with_payloads
from proxy.compaction.cut_json import json_value
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.form import ShortForm, Treatment, compact, condensed, treated, weight
from proxy.compaction.html import readable
from proxy.compaction.outline import headline
from proxy.compaction.shortening import parts
from proxy.text.json_values import minified, rendered

__all__ = [
    "ShortForm",
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
