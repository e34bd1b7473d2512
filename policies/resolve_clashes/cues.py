"""The words by which people deny, correct, update and hedge, in English and Spanish, as patterns on folded text."""

import re
from collections.abc import Mapping

from proxy.text.tables import patterns

CUES: Mapping[str, re.Pattern[str]] = {name: re.compile(pattern) for name, pattern in patterns("clashes/cues").items()}
"""By name, as in `data/clashes/cues.txt`."""
ASKED = tuple((name.removeprefix("asks "), cue) for name, cue in CUES.items() if name.startswith("asks "))
"""What an assistant asks for when it does not know it yet: the kind of value, and the pattern."""
