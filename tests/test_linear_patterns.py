"""Patterns over what clients send take time in proportion to its length: 100 KB of the worst is done at once.

Each runs in a process of its own, because a pattern cannot be interrupted. A quadratic one takes minutes here.
"""

import subprocess
import sys

import pytest

WORST = [
    ("proxy.claims.sentences:_ENCLITIC", "fullmatch", "é"),
    ("proxy.clashes.clauses:_JOINT", "findall", " "),
    ("proxy.clashes.clauses:_JOINT", "findall", "\n"),
    ("proxy.claims.measures:_CODE", "findall", "a-"),
    ("proxy.clashes.values:_EMAIL", "findall", "1."),
]
SEARCH = """
import importlib, sys
module, name = sys.argv[1].split(":")
getattr(getattr(importlib.import_module(module), name), sys.argv[2])((sys.argv[3] * 100_000)[:100_000] + "\\0")
"""


@pytest.mark.parametrize(("pattern", "call", "unit"), WORST)
def test_the_worst_text_of_100_kb_is_searched_at_once(pattern: str, call: str, unit: str) -> None:
    subprocess.run([sys.executable, "-c", SEARCH, pattern, call, unit], check=True, timeout=60)
