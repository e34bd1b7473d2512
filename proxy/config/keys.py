"""Makes keys of Penstock, and hashes them.

Only the SHA-256 of a key is kept. A key has 256 random bits, so it cannot be guessed; slow hashes and salts are for
passwords, which people choose. A key is looked up by its hash. The time of the look-up depends on the hash alone,
and nobody can choose a key by its hash.
"""

import base64
import hashlib
import json
import secrets

PREFIX = "pk-"
"""The prefix of keys, by which people and scanners recognise one."""

_BYTES = 32


def new_key() -> str:
    """Return a new key: the prefix and 256 random bits in letters and digits."""
    return PREFIX + base64.b32encode(secrets.token_bytes(_BYTES)).decode().rstrip("=").lower()


def hash_of(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal."""
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def entry_of(name: str, key: str, tenant: str | None = None) -> str:
    """Return the entry of a key, as lines of YAML."""
    lines = [f"- name: {json.dumps(name)}", f"  hash: {hash_of(key)}"]
    if tenant is not None:
        lines.append(f"  tenant: {json.dumps(tenant).replace('$', '$$')}")  # a dollar begins a variable
    return "\n".join(lines)
