"""Words that say that something is wrong: what they stand in is never dropped as one of many."""

import re

_SIGNAL = re.compile(
    r"error|fail|fatal|warn|exception|traceback|critical|panic|denied|refused|timeout|timed out|invalid|not found",
    re.IGNORECASE,
)


def is_signal(text: str) -> bool:
    """Whether a line or a record reports an error or a warning."""
    return _SIGNAL.search(text) is not None
