"""Fit the classifier of `proxy/history/statements.py` to the sentences of `proxy/data/statements.txt`.

Writes `proxy/data/statements.json`, and prints how well unseen sentences are told apart (five-fold cross-validation).
With `--data FILE` it also judges sentences that took no part in the fit: JSON lines with `text` and `kept` (true or
false). Needs the extra `embedding`, which brings scikit-learn.
"""

import argparse
import asyncio
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from proxy.config.embedding_settings import SentenceTransformersEmbedding
from proxy.history.statements import KINDS, SIZE, features
from proxy.vectors.packing import pack
from proxy.vectors.sentence_transformers import Sentences

DATA = Path(__file__).parent.parent / "proxy" / "data"
FORMS = 13
ALONE, BESIDE = 16.0, 8.0
"""How little the weights are held back (scikit-learn's C) without and with vectors."""


def labelled() -> tuple[list[str], list[str]]:
    texts, kinds, kind = [], [], ""
    for line in (DATA / "statements.txt").read_text(encoding="utf-8").splitlines():
        if line.strip("[]") in KINDS:
            kind = line[1:-1]
        elif line and not line.startswith("# "):
            texts.append(line)
            kinds.append(kind)
    return texts, kinds


def matrix(texts: list[str]) -> np.ndarray:
    rows = np.zeros((len(texts), FORMS + SIZE))
    for row, text in zip(rows, texts, strict=True):
        for place, value in features(text).items():
            row[place] = value
    return rows


def vectors(model: Sentences, texts: list[str]) -> np.ndarray:
    packed = asyncio.run(model.embed(texts))
    width = (len(packed[0]) - 1) // 2
    return np.array([np.frombuffer(each[1 : 1 + 2 * width], "<f2").astype("f4") for each in packed])


def fitted(rows: np.ndarray, kinds: list[str], freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """The weights of each kind, in the order of `KINDS`, and their biases."""
    found: Any = LogisticRegression(C=freedom, max_iter=5000).fit(csr_matrix(rows), kinds)
    order = [list(found.classes_).index(kind) for kind in KINDS]
    return found.coef_[order], found.intercept_[order]


def kept(rows: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    scores = rows @ weights.T + bias
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    likely: np.ndarray = 1 - odds[:, -1] / odds.sum(axis=1)
    return likely


def report(name: str, truth: np.ndarray, sure: np.ndarray) -> None:
    threshold = sorted(sure[truth])[int(0.1 * truth.sum())]
    print(
        f"{name:32} AUC {roc_auc_score(truth, sure):.3f}, "
        f"0.5 keeps {(sure[truth] >= 0.5).mean():.2f} and {(sure[~truth] >= 0.5).mean():.2f} of the chatter, "
        f"{(sure[~truth] >= threshold).mean():.2f} of it where 0.9 are kept"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="sentences to judge that took no part in the fit")
    options = parser.parse_args()
    texts, kinds = labelled()
    model = Sentences(SentenceTransformersEmbedding(kind="sentence-transformers"))
    words = matrix(texts)
    both = np.hstack([vectors(model, texts), words])
    truth = np.array(kinds) != "none"
    for name, rows, freedom in (("form and words", words, ALONE), ("and vectors", both, BESIDE)):
        sure = np.zeros(len(texts))
        for seen, unseen in StratifiedKFold(5, shuffle=True, random_state=1).split(rows, kinds):
            sure[unseen] = kept(rows[unseen], *fitted(rows[seen], [kinds[place] for place in seen], freedom))
        report(f"{name}, {len(texts)} sentences", truth, sure)
    alone, alone_bias = fitted(words, kinds, ALONE)
    beside, beside_bias = fitted(both, kinds, BESIDE)
    width = both.shape[1] - words.shape[1]
    directions, lengths = beside[:, :width], np.linalg.norm(beside[:, :width], axis=1)
    weights = np.hstack([alone.T, beside[:, width:].T])
    scale = float(np.abs(weights).max()) / 127
    written = {
        "model": model.name,
        "lengths": [round(float(each), 4) for each in lengths],
        "bias": [round(float(each), 4) for each in (*alone_bias, *beside_bias)],
        "scale": scale,
        "directions": [b64encode(pack([each])).decode() for each in directions],
        "weights": b64encode(np.round(weights / scale).astype("i1").tobytes()).decode(),
    }
    (DATA / "statements.json").write_text(json.dumps(written, indent=0) + "\n", encoding="utf-8")
    if options.data:
        judged = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
        said, truth = [row["text"] for row in judged], np.array([row["kept"] for row in judged])
        words = matrix(said)
        report("unseen, form and words", truth, kept(words, alone, alone_bias))
        report("unseen, and vectors", truth, kept(np.hstack([vectors(model, said), words]), beside, beside_bias))


if __name__ == "__main__":
    main()
