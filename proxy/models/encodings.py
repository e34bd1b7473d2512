"""Encoders of text to tokens: vocabularies in `proxy/data/tiktoken`, or the operator's own; none is downloaded."""

import hashlib
from binascii import a2b_base64
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

from proxy.text import well_formed
from proxy.text.tables import table

Encoder = Callable[[str], int]
"""Counts the tokens of a text. It never raises for any string."""

LONGEST_PIECE = 100_000
"""Characters that are encoded at once. The pattern engine panics on whitespace runs of about a million characters."""

VOCABULARIES: dict[str, dict[str, Any]] = table("vocabularies")
"""OpenAI's published vocabularies: the file of each, its SHA-256, and the pattern that cuts text into pieces."""

SHIPPED = frozenset({*VOCABULARIES, "chars"})
"""The encodings that ship with the package; others are the operator's files, and 8 times slower."""

ALIASES = {"o200k_harmony": "o200k_base"}
"""Encodings that differ from another one only in special tokens, which text of users never holds."""

LENT = "o200k_base"
"""The vocabulary for models without a published tokenizer."""


def characters(text: str) -> int:
    """Return four characters a token, rounded up: the count without a vocabulary."""
    return ceil(len(text) / 4)


def load_encoder(name: str) -> Encoder:
    """Return the encoder of a name, a path included. It reads megabytes and takes 0.3 s of CPU: call it in a thread.

    Raise `LookupError` for an unknown name, `ValueError` for a damaged file, and whatever a tokenizer library raises.
    """
    name = ALIASES.get(name, name)
    if name == "chars":
        return characters
    if name in VOCABULARIES:
        encode = _encoding(name, VOCABULARIES[name]["sha256"]).encode_ordinary
        return partial(_in_pieces, lambda text: len(encode(text)))
    path = Path(name).expanduser()
    if not path.exists():
        known = ", ".join(sorted({*VOCABULARIES, *ALIASES, "chars"}))
        raise LookupError(f"unknown encoding {name!r}: neither a path nor one of {known}")
    return partial(_in_pieces, load_tokenizer(path))


def lend(name: str) -> None:
    """Give libraries that ask tiktoken for a vocabulary the one that Penstock has loaded: it saves 37 MB."""
    from tiktoken import registry

    registry.ENCODINGS.setdefault(name, _encoding(LENT, VOCABULARIES[LENT]["sha256"]))


@cache  # 60 MB and half a second of work: once a process is enough, whatever is built and built again in it
def _encoding(name: str, sha256: str) -> Any:
    import tiktoken

    file, pattern = VOCABULARIES[name]["file"], "".join(VOCABULARIES[name]["pattern"])
    ranks: dict[bytes, int] = {}
    with (files("proxy") / "data" / "tiktoken" / file).open("rb") as lines:
        if hashlib.sha256(lines.read()).hexdigest() != sha256:
            raise ValueError(f"the vocabulary {name} is damaged: {file} has another SHA-256 than published")
        lines.seek(0)
        for line in lines:  # a loop, not dict(map()): other threads get their turn between two lines
            token, rank = line.split()
            ranks[a2b_base64(token)] = int(rank)
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the encoder has its own copy: this one would hold 26 MB for nothing
    return encoding


def _in_pieces(encode: Encoder, text: str) -> int:
    """Return the tokens of a text of any length, cut before a space where there is one: there a token begins anyway."""
    if len(text) <= LONGEST_PIECE:
        return encode(text)
    total = start = 0
    while start < len(text):
        end = start + LONGEST_PIECE
        if end < len(text):
            space = text.rfind(" ", start + LONGEST_PIECE // 2, end)
            end = space if space > 0 else end
        total += encode(text[start:end])
        start = end
    return total


def load_tokenizer(path: Path) -> Callable[[str], int]:
    """Return a function that counts with the `tokenizer.json` at or in `path`; else `transformers` reads older formats.

    Raise what the libraries raise, and `ImportError` where the extra `tokenizers` is not installed.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return lambda text: len(tokenizer.encode(well_formed(text), add_special_tokens=False).ids)
    auto = import_module("transformers").AutoTokenizer
    encode = auto.from_pretrained(str(path), local_files_only=True, trust_remote_code=False).encode
    return lambda text: len(encode(well_formed(text), add_special_tokens=False, truncation=False))
