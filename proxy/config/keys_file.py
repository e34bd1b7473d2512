"""Adds an entry to a file of keys."""

import base64
import fcntl
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxy.chat.errors import ConfigError
from proxy.config.document import Document, with_item
from proxy.config.load import keys_of, unreadable


def add_entry(path: Path, name: str, entry: str, *, if_missing: bool = False) -> bool:
    """Add the entry of a new key. Return False if `if_missing` is set and the name exists, else True.

    A new file gets mode 0600. An existing one keeps its content, mode and owner. Readers see the old file or the new
    one, and a second writer waits. Raise `ConfigError`, and leave the file as it was.
    """
    target = path.resolve()  # a link stays one
    with _alone_in(target.parent):
        try:
            text = target.read_bytes().decode() if target.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(path, error) from None
        listed = Document(path, text, os.environ)
        names = [key.name for key in keys_of(listed)]
        if name in names:
            if if_missing:
                return False
            raise listed.error(("keys", names.index(name), "name"), f"a key is called {name!r} already")
        try:
            _replace(target, _with_entry(listed, text, entry))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
        return True


def _with_entry(listed: Document, text: str, entry: str) -> str:
    """Return the text with the entry. Parse it to make sure that the present entries stay, whatever the file's form."""
    text_after = with_item(text, "keys", entry)
    before = keys_of(listed)
    try:
        after = keys_of(Document(listed.path, text_after, os.environ))
    except ConfigError:
        after = ()
    if len(after) != len(before) + 1 or before not in (after[1:], after[:-1]):
        told = "cannot add to a file of this form; write `keys:` and below it a list with one entry per item"
        raise ConfigError(f"{listed.path}: {told}")
    return text_after


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock for one process at a time; works in a read-only folder too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(target: Path, text: str) -> None:
    """Replace a file's text atomically, and keep its mode and owner."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # with mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8", newline="") as file:
            if target.exists():
                before, now = target.stat(), os.fstat(descriptor)
                if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, before.st_mode & 0o777)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(name, target)
    finally:
        Path(name).unlink(missing_ok=True)


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
