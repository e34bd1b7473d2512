"""Distil the static model of `proxy/vectors/static.py`, in `proxy/data/static`, from all-MiniLM-L6-v2.

    python -m benchmarks.distil --glosses path/to/wordnet/dict

A token's vector begins as the model's vector of the token alone, with a lower weight for a frequent token. Ridge
regression then fits all vectors to the model's vectors of every second gloss of WordNet, in their 256 principal
directions. They are stored as bytes with a scale for each. It takes some five minutes and 2 GB; `make static-model`
fetches the glosses and runs it. Needs the extra `semantic`.
"""

import argparse
import hashlib
import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sparse

from proxy.vectors.sentence_transformers import built_in_model, libraries
from proxy.vectors.static import DATA, WordPiece

WIDTH = 256
RARE = 1e-4
"""Share of all text at which a token's weight is a half. Shares follow the rank, because the vocabulary is sorted."""
RIDGE = 3.0
"""Regularisation: a higher value keeps vectors closer to those of single tokens."""
ROUNDS = 25
BATCH = 64
"""Texts that the model reads at once."""


def glosses(folder: Path) -> list[str]:
    """Return WordNet's synsets as `word, word: meaning; "an example"`."""
    texts: list[str] = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (folder / f"data.{part}").read_text(encoding="latin-1").splitlines():
            head, bar, gloss = line.partition(" | ")
            if bar and not line.startswith("  "):
                fields = head.split()
                words = [fields[4 + 2 * n].split("(")[0].replace("_", " ") for n in range(min(int(fields[3], 16), 3))]
                texts.append(f"{', '.join(words)}: {gloss.strip()}")
    return texts


def hidden(model: Any, torch: Any, rows: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the mean of the model's hidden states over the tokens of each row, including those at its ends."""
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    means = np.zeros((len(rows), model.config.hidden_size), "f4")
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            longest = max(len(rows[place]) for place in places)
            ids = torch.tensor([[*rows[place], *[0] * (longest - len(rows[place]))] for place in places])
            mask = torch.tensor([[n < len(rows[place]) for n in range(longest)] for place in places])
            state = model(input_ids=ids, attention_mask=mask.long()).last_hidden_state
            means[places] = ((state * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).numpy()
    return means


def principal(rows: np.ndarray) -> np.ndarray:
    """Return the principal directions of rows as columns, each with its largest number positive."""
    _, _, directions = np.linalg.svd(rows.T.astype("f8") @ rows)
    chosen = directions[:WIDTH].T
    signs = np.sign(chosen[np.abs(chosen).argmax(0), np.arange(WIDTH)])
    columns: np.ndarray = (chosen * signs).astype("f4")
    return columns


def fit(texts: Any, wanted: np.ndarray) -> Any:
    """Return the change of the tokens' vectors that brings the sums of texts to `wanted`, by conjugate gradients."""
    step = residual = texts.T @ wanted
    change = np.zeros_like(residual)
    size = (residual**2).sum(0)
    for _ in range(ROUNDS):
        image = texts.T @ (texts @ step) + RIDGE * step
        stride = size / (step * image).sum(0)
        change, residual = change + stride * step, residual - stride * image
        before, size = size, (residual**2).sum(0)
        step = residual + size / before * step
    return change


def token_vectors(vocabulary: list[str], alone: np.ndarray, texts: list[list[int]], whole: np.ndarray) -> np.ndarray:
    """Return the vectors of tokens. `alone` has the model's vectors of tokens, `whole` those of texts."""
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    weights = RARE / (RARE + shares / shares.sum())
    vectors = ((alone - alone.mean(0)) * weights[:, None]).astype("f4")
    whole = whole / np.linalg.norm(whole, axis=1, keepdims=True)
    whole = whole - whole.mean(0)
    basis = principal(whole)
    vectors, whole = vectors @ basis, whole @ basis
    ends = np.cumsum([0, *map(len, texts)])
    numbers = np.concatenate([np.full(len(text), len(text) ** -0.5, "f4") for text in texts])
    sums = sparse.csr_matrix((numbers, np.concatenate(texts), ends), shape=(len(texts), len(vocabulary)))
    first = sums @ vectors
    vectors *= (first * whole).sum() / (first**2).sum()
    fitted: np.ndarray = vectors + fit(sums, whole - sums @ vectors)
    return fitted


def write(folder: Path, vocabulary: list[str], vectors: np.ndarray) -> None:
    """Write the tables, and print their checksums, which a test pins."""
    scales = np.abs(vectors).max(1) / 127
    np.save(folder / "vectors.npy", np.round(vectors / scales[:, None]).astype("i1"))
    np.save(folder / "scales.npy", scales.astype("<f4"))
    (folder / "tokens.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    for file in sorted(folder.iterdir()):
        print(hashlib.sha256(file.read_bytes()).hexdigest(), file.name, file.stat().st_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--glosses", type=Path, required=True, help="the folder with WordNet's data.noun and others")
    parser.add_argument("--out", type=Path, default=DATA)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch, _ = libraries()
    torch.set_num_threads(1)
    source = built_in_model()
    if source is None:
        raise SystemExit("pip install 'penstock[semantic]'")
    model = import_module("transformers").AutoModel.from_pretrained(str(source)).eval()
    all_tokens = [token for token in (source / "vocab.txt").read_text(encoding="utf-8").split("\n") if token]
    places = [place for place, token in enumerate(all_tokens) if len(token) < 3 or token[0] + token[-1] != "[]"]
    vocabulary = [all_tokens[place] for place in places]
    start, end = all_tokens.index("[CLS]"), all_tokens.index("[SEP]")
    words = WordPiece(vocabulary)
    texts = [tokens for each in glosses(options.glosses)[::2] if (tokens := words.tokens(each)[:126])]
    print(len(vocabulary), "tokens,", len(texts), "texts", flush=True)
    rows = [[start, *(places[token] for token in text), end] for text in texts]
    whole = hidden(model, torch, rows)
    alone = hidden(model, torch, [[start, place, end] for place in places])
    options.out.mkdir(exist_ok=True)
    write(options.out, vocabulary, token_vectors(vocabulary, alone, texts, whole))


if __name__ == "__main__":
    main()
