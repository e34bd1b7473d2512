"""Compact forms of large texts that were read once. Pure functions of the text."""

from proxy.compaction.calls import arguments_of, callers, payloads, with_payloads
from proxy.compaction.cut_json import json_value
from proxy.compaction.envelopes import unwrapped
from proxy.compaction.form import weight
from proxy.compaction.headline import headline
from proxy.compaction.html import readable
from proxy.compaction.lines import condensed
from proxy.compaction.pieces import parts
from proxy.text.json_values import minified, rendered

__all__ = [
    "arguments_of",
    "callers",
    "condensed",
    "headline",
    "json_value",
    "minified",
    "parts",
    "payloads",
    "readable",
    "rendered",
    "unwrapped",
    "weight",
    "with_payloads",
]
