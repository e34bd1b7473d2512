"""Tokenizers of open models, from files on this machine. The only file that imports tokenizers and transformers."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def load_tokenizer(path: Path) -> Callable[[str], int]:
    """Return a function that counts tokens with the tokenizer at `path`, special tokens not included.

    A file must be a `tokenizer.json`. A directory is searched for one; without it `transformers` is asked, which knows
    older formats and takes seconds to import. Nothing is downloaded. Raise what the libraries raise, and `ImportError`
    where the extra `tokenizers` is not installed.
    """
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file():
        tokenizer = import_module("tokenizers").Tokenizer.from_file(str(file))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return lambda text: len(tokenizer.encode(_without_surrogates(text), add_special_tokens=False).ids)
    auto = import_module("transformers").AutoTokenizer
    encode = auto.from_pretrained(str(path), local_files_only=True, trust_remote_code=False).encode
    return lambda text: len(encode(_without_surrogates(text), add_special_tokens=False, truncation=False))


def _without_surrogates(text: str) -> str:
    """Return the text as UTF-8 can hold it: clients that cut emoji in half send lone surrogates."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
