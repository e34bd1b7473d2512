"""Vocabularies: the bytes that ship are the published ones, they count as tiktoken does, and nothing is fetched."""

import json
import random
import socket
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from proxy.models import encodings
from proxy.models.encodings import ALIASES, LONGEST_PIECE, VOCABULARIES, Encoder, lend, load_encoder

DATA = Path(encodings.__file__).parent.parent / "data" / "tiktoken"
TEXTS = [
    "",
    "hello world",
    "def f(x):\n    return x ** 2  # it's squared\r\n\r\n",
    "Zażółć gęślą jaźń — 漢字かな交じり文 🙂👩‍👩‍👧 ٣٤٥",
    "<|endoftext|> is text, and so is <|im_start|>",
    "1234567 3.14159 0xDEADBEEF 2026-11-21T22:16:05Z",
    '{"a": [1, 2, {"b": null}], "c": "I\'ll SHE\'LL\tthey\'d"}',
    "   leading and trailing   \n\n\t ",
    "ÉCOLE Élève ǅ ʰ",
]


@pytest.fixture(scope="module")
def loaded() -> dict[str, Encoder]:
    return {name: load_encoder(name) for name in VOCABULARIES}


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base", "o200k_harmony"])
def test_counts_are_those_of_tiktoken(name: str, loaded: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})  # another test may have lent one
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(DATA))  # tiktoken checks name and hash of the files itself
    official = tiktoken.get_encoding(name)
    dice = random.Random(1)
    noise = ["".join(chr(dice.choice([dice.randrange(32, 127), dice.randrange(0x20, 0xD000)])) for _ in range(80))
             for _ in range(200)]  # fmt: skip
    count = loaded[ALIASES.get(name, name)]
    for text in (*TEXTS, *noise):
        assert count(text) == len(official.encode_ordinary(text)), text
    assert count("half an emoji: \ud83d") > 0


def test_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))  # what importing litellm does to it must not matter
    assert load_encoder("cl100k_base")("hello world") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_vocabulary_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VOCABULARIES["cl100k_base"], "sha256", "0" * 64)
    with pytest.raises(ValueError, match="damaged"):
        load_encoder("cl100k_base")


@pytest.mark.parametrize("text", [" " * 1_500_000, "\t " * 400_000 + "x", "\n" * 300_000, "a" * 500_000, "!" * 500_000])
def test_runs_on_which_the_pattern_engine_would_panic_are_counted(text: str, loaded: dict[str, Encoder]) -> None:
    for count in loaded.values():
        assert 0 < count(text) <= len(text)


def test_long_texts_are_cut_where_a_token_begins(loaded: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch) -> None:
    words = " ".join(random.Random(2).choice(["alpha", "Beta's", "42", "x=1;", "γ"]) for _ in range(30_000))
    whole = loaded["o200k_base"](words)
    assert len(words) > LONGEST_PIECE
    monkeypatch.setattr(encodings, "LONGEST_PIECE", 10**9)
    assert loaded["o200k_base"](words) == whole


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_chars(text: str, tokens: int) -> None:
    assert load_encoder("chars")(text) == tokens


@pytest.mark.parametrize("name", ["p50k_base", "gpt2", "/nowhere/tokenizer.json", "o200k"])
def test_what_does_not_ship_is_refused_by_name(name: str) -> None:
    with pytest.raises(LookupError, match="cl100k_base"):
        load_encoder(name)


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    settings: Any = {"vocab_size": 400, "initial_alphabet": alphabet, "special_tokens": ["<s>"], "show_progress": False}
    trainer = trainers.BpeTrainer(**settings)
    tokenizer.train_from_iterator(["the cat sat on the mat"] * 20, trainer)
    tokenizer.enable_truncation(4)  # files in the wild have this set, and would count four at most
    tokenizer.enable_padding(length=64)
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


def test_a_tokenizer_file_counts_without_its_truncation_and_padding(tokenizer_file: Path) -> None:
    count = load_encoder(str(tokenizer_file))
    assert load_encoder(str(tokenizer_file.parent))("the cat") == 2, "its directory is as good"
    assert count("the cat sat on the mat") == 6
    assert count("the cat sat on the mat " * 10) > 50
    assert count("\ud83d") > 0


def test_a_directory_that_only_transformers_understands(tmp_path: Path) -> None:
    words = ["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    assert load_encoder(str(tmp_path))("hello world hello") == 3


def test_other_libraries_share_the_vocabulary_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    lend("cl100k_base")
    lend("cl100k_base")
    lent = tiktoken.get_encoding("cl100k_base")
    assert len(lent.encode("Hello, world", disallowed_special=())) == load_encoder("o200k_base")("Hello, world")
