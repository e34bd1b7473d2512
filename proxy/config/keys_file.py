"""Adds entries to a file of keys, and removes them."""

import argparse
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
from typing import Any

from proxy.chat.errors import ConfigError
from proxy.config.document import Document, Sources, with_item, without_item
from proxy.config.load import keys_of
from proxy.config.settings import KeySettings


def add_entry(path: Path, name: str, entry: str, *, if_missing: bool = False) -> bool:
    """Add the entry of a new key. Return False if `if_missing` is set and the name exists, else True.

    A new file gets mode 0600. Readers see the old file or the new. Raise `ConfigError`, and leave the file as it was.
    """
    with _alone_in(path.resolve().parent):
        listed, text = _read(path)
        before, text_after = keys_of(listed), with_item(text, "keys", entry)
        names = [key.name for key in before]
        if name in names:
            if if_missing:
                return False
            raise listed.error(("keys", names.index(name), "name"), f"a key is called {name!r} already")
        # whatever the file's form, the present entries must stay
        after = _keys_in(path, text_after) or ()
        if len(after) != len(before) + 1 or before not in (after[1:], after[:-1]):
            told = "cannot add to a file of this form; write `keys:` and below it a list with one entry per item"
            raise ConfigError(f"{path}: {told}")
        _write(path, text_after)
        return True


def remove_entry(path: Path, name: str) -> bool:
    """Remove the entry of a key. Return False if there is none. Raise `ConfigError`, and leave the file as it was."""
    with _alone_in(path.resolve().parent):
        listed, text = _read(path)
        before = keys_of(listed)
        place = next((place for place, key in enumerate(before) if key.name == name), None)
        if place is None:
            return False
        remaining = without_item(text, "keys", place)
        if _keys_in(path, remaining) != (*before[:place], *before[place + 1 :]):
            raise ConfigError(f"{path}: cannot remove from a file of this form; remove the entry of {name!r} yourself")
        _write(path, remaining)
        return True


def names_in(path: Path) -> set[str]:
    """Return the names of the keys in a file. Raise `ConfigError`."""
    return {key.name for key in keys_of(_read(path)[0])}


def _read(path: Path) -> tuple[Document, str]:
    sources = Sources(os.environ)
    text = sources.read(path) if path.exists() else ""
    return Document(path, text, sources), text


def _write(path: Path, text: str) -> None:
    try:
        _replace(path.resolve(), text)  # a link stays one
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _keys_in(path: Path, text: str) -> tuple[KeySettings, ...] | None:
    try:
        return keys_of(Document(path, text, Sources(os.environ)))
    except ConfigError:
        return None


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


def entry_of(name: str, key: str, tenant: str | None = None, **more: Any) -> str:
    """Return the entry of a key, as lines of YAML; `more` are further settings as JSON values."""
    values = more if tenant is None else {"tenant": tenant, **more}
    lines = [f"- name: {json.dumps(name)}", f"  hash: {hash_of(key)}"]
    for field, value in values.items():
        text = json.dumps(value, ensure_ascii=False).replace("$", "$$")  # a dollar begins a variable
        lines.append(f"  {field}: {text}")
    return "\n".join(lines)


_SHOWN = "# the new key, shown only once and stored nowhere:\n"


def print_key(options: argparse.Namespace) -> None:
    """Print a new key with its entry, or add that to a file: `penstock keys new`."""
    name, key = options.name, new_key()
    entry = entry_of(name, key, options.tenant)
    if options.file is None:
        if options.if_missing:
            raise ConfigError("--if-missing needs --file")
        print(f"{_SHOWN}{key}\n# its entry, for auth.keys or a file of keys:\n{entry}")
    elif add_entry(options.file, name, entry, if_missing=options.if_missing):
        print(f"{_SHOWN}{key}\n# added to {options.file} as {name!r}")
    else:
        print(f"# {options.file} already has a key named {name!r}: nothing to do")
