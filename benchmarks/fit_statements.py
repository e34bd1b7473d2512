"""Fit the classifier of `proxy/history/statements.py` to the sentences of `proxy/data/statements.txt`.

Writes `proxy/data/statements.json`, and prints how well unseen sentences are told apart (five-fold cross-validation).
With `--data FILE` it also judges sentences that took no part in the fit: JSON lines with `text` and `kept` (true or
false). Needs the extra `embedding`, which brings scikit-learn.
"""

import argparse
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from proxy.history.statements import KINDS, SIZE, features

DATA = Path(__file__).parent.parent / "proxy" / "data"
FORMS = 13
FREEDOM = 16.0
"""How little the weights are held back (scikit-learn's C)."""


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


def fitted(rows: np.ndarray, kinds: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The weights of each kind, in the order of `KINDS`, and their biases."""
    found: Any = LogisticRegression(C=FREEDOM, max_iter=5000).fit(csr_matrix(rows), kinds)
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
    rows, truth, sure = matrix(texts), np.array(kinds) != "none", np.zeros(len(texts))
    for seen, unseen in StratifiedKFold(5, shuffle=True, random_state=1).split(rows, kinds):
        sure[unseen] = kept(rows[unseen], *fitted(rows[seen], [kinds[place] for place in seen]))
    report(f"{len(texts)} sentences", truth, sure)
    weights, bias = fitted(rows, kinds)
    scale = float(np.abs(weights).max()) / 127
    written = {
        "bias": [round(float(each), 4) for each in bias],
        "scale": scale,
        "weights": b64encode(np.round(weights.T / scale).astype("i1").tobytes()).decode(),
    }
    (DATA / "statements.json").write_text(json.dumps(written, indent=0) + "\n", encoding="utf-8")
    if options.data:
        judged = [json.loads(line) for line in options.data.read_text(encoding="utf-8").splitlines()]
        truth = np.array([row["kept"] for row in judged])
        report("unseen", truth, kept(matrix([row["text"] for row in judged]), weights, bias))


if __name__ == "__main__":
    main()
