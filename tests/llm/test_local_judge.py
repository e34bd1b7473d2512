"""A cross-encoder for real, if a tiny one of random weights: no trained one can be had in the tests."""

import importlib.util
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from proxy.config.judge_settings import JudgeSettings
from proxy.context import Identity
from proxy.llm.local_judge import JudgeService

needs_models = pytest.mark.skipif(
    importlib.util.find_spec("sentence_transformers") is None, reason="the extra semantic is not installed"
)
LONG = 300.0
"""Seconds that no test waits for."""
FACT, SAID = "Ada was born in 1815.", "Ada was born in 1852."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    transformers: Any = importlib.import_module("transformers")
    directory = tmp_path_factory.mktemp("nli")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ada", "was", "born", "in", "1815", "1852", "."]
    (directory / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizerFast(vocab_file=str(directory / "vocab.txt")).save_pretrained(directory)
    labels = {0: "entailment", 1: "neutral", 2: "CONTRADICTION"}
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
        id2label=labels, label2id={label: n for n, label in labels.items()},
    )  # fmt: skip
    transformers.BertForSequenceClassification(config).save_pretrained(directory)
    return directory


@pytest.fixture
async def judge(model: Path) -> AsyncIterator[JudgeService]:
    service = JudgeService(JudgeSettings(model=str(model)))
    yield service
    await service.aclose()


@needs_models
async def test_a_pair_gets_the_share_of_the_contradiction(judge: JudgeService) -> None:
    judge.warm()
    found = await judge.bind(Identity("t")).contradictions([(FACT, SAID), (SAID, FACT), (FACT, SAID)], wait=LONG)
    assert all(each is not None and 0 < each < 1 for each in found)
    assert found[0] == found[2]
    assert list(await judge.bind(Identity("t")).contradictions([(FACT, SAID)], wait=0)) == [found[0]]


@needs_models
async def test_a_verdict_of_one_tenant_is_not_there_for_another(judge: JudgeService) -> None:
    await judge.bind(Identity("t")).contradictions([(FACT, SAID)], wait=LONG)
    assert list(await judge.bind(Identity("other")).contradictions([(FACT, SAID)], wait=0)) == [None]


@pytest.fixture
def unlabelled(model: Path, tmp_path: Path) -> Path:
    shutil.copytree(model, tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    config["id2label"] = {"0": "a", "1": "b", "2": "c"}
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    return tmp_path / "model"


@needs_models
async def test_a_model_without_such_a_label_is_none(unlabelled: Path) -> None:
    await gives_nothing(unlabelled)


async def test_no_such_directory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await gives_nothing(tmp_path / "none")
    assert str(tmp_path) not in caplog.text


async def gives_nothing(path: Path) -> None:
    service = JudgeService(JudgeSettings(model=str(path)))
    for _ in range(2):
        assert list(await service.bind(Identity("t")).contradictions([(FACT, SAID)], wait=LONG)) == [None]
    await service.aclose()


class Slow(JudgeService):
    """A model whose thread waits for the test."""

    def _judged(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        if self.breaks:
            raise RuntimeError("the model's own")
        return [0.5] * len(pairs)

    breaks = False


async def test_what_is_late_is_not_waited_for_and_is_there_the_next_time(tmp_path: Path) -> None:
    service = Slow(JudgeSettings(model=str(tmp_path)))
    assert list(await service.bind(Identity("t")).contradictions([(FACT, SAID)], wait=0)) == [None]
    assert list(await service.bind(Identity("t")).contradictions([(FACT, SAID)], wait=LONG)) == [0.5]
    await service.aclose()


async def test_a_broken_model_is_left_alone(tmp_path: Path) -> None:
    service = Slow(JudgeSettings(model=str(tmp_path)))
    service.breaks = True
    assert list(await service.bind(Identity("t")).contradictions([(FACT, SAID)], wait=LONG)) == [None]
    service.breaks = False
    assert list(await service.bind(Identity("t")).contradictions([(FACT, SAID)], wait=LONG)) == [None]
    await service.aclose()
