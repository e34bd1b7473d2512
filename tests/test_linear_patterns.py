"""Patterns over what clients and upstreams send take time in proportion to its length, however it is made."""

import subprocess
import sys


def test_no_pattern_takes_long_over_its_worst_texts() -> None:
    trying = [sys.executable, "-m", "tests.linear_patterns"]
    done = subprocess.run(trying, capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout, done.returncode) == ("", 0), f"these take too long:\n{done.stdout}{done.stderr}"
