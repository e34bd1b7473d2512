"""Penstock's own keys: how one is made, and what is kept of it.

Of a key only its SHA-256 is kept. A key has 256 random bits, so there is nothing to guess that a slow hash or a salt
would make slower: they are for passwords, which people choose. A key is found by looking its hash up. What the look-up
takes depends on the hash alone, and nobody can choose a key by its hash.
"""

import base64
import hashlib
import json
import secrets

PREFIX = "pk-"
"""What keys begin with, so that people and scanners know one."""

_BYTES = 32


def new_key() -> str:
    """A new key: 256 random bits in letters and digits, behind a prefix."""
    return PREFIX + base64.b32encode(secrets.token_bytes(_BYTES)).decode().rstrip("=").lower()


def hash_of(key: str) -> str:
    """What is kept of a key, in hexadecimal."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def entry_of(name: str, key: str, tenant: str | None = None) -> str:
    """The lines of YAML that let a key in."""
    lines = [f"- name: {json.dumps(name)}", f"  hash: {hash_of(key)}"]
    if tenant is not None:
        lines.append(f"  tenant: {json.dumps(tenant).replace('$', '$$')}")  # a dollar begins a variable
    return "\n".join(lines)
