"""A message is about what left only where it has more in common with it than any message has."""

from collections.abc import Sequence

import pytest

from policies.recall_history.chance import above_chance, spread
from proxy.context import Identity
from proxy.state.cache import OnceService
from proxy.testing import context
from proxy.text.bm25 import Fits, index
from tests.services import ToldEmbedder

TEXTS = (
    "The staging database listens on port 6543.",
    "Is that really true? I want to keep the old version.",
    *(f"Row {n} of the table says that the weather in the town was fine." for n in range(40)),
)


class Any(ToldEmbedder):
    """Any message is as near to the past as this, give or take a tenth."""

    def __init__(self, middle: float) -> None:
        super().__init__()
        self.middle, self.asked = middle, 0

    async def nearest(self, queries: Sequence[str], texts: Sequence[str], *, wait: float) -> Sequence[float | None]:
        self.asked += 1
        return [self.middle + (0.1 if place % 2 else -0.1) for place in range(len(queries))]


async def above(question: str, nearest: float, embedder: Any) -> float:
    ctx = context(once=ONCE.bind(Identity("t")), embedder=embedder)
    terms = index(TEXTS)
    return await above_chance(Fits(question, [terms]), nearest, embedder.middle, TEXTS, (terms,), ctx)


ONCE = OnceService()


@pytest.mark.parametrize("middle", [0.2, 0.6])
async def test_chance_is_measured_whatever_the_scale_of_a_model(middle: float) -> None:
    embedder = Any(middle)
    embedder.name = f"scale-{middle}"
    near, far = await above("staging port?", middle + 0.2, embedder), await above("And in winter?", middle, embedder)
    assert near > 0 > far
    assert embedder.asked == 1, "once for the same passages"


async def test_words_that_stand_everywhere_are_chance_and_spread_has_a_least_deviation() -> None:
    embedder = Any(0.3)
    embedder.name = "words"
    weather, port = [await above(each, 0.3, embedder) for each in ("What was the weather in the town?", "port 6543")]
    assert weather < -2.85 < port
    assert spread([1.0, 1.0, 1.0], 0.5) == (1.0, 0.5)
    assert spread([0.0] * 60 + [3.0] * 4, 0.5)[0] == 3.0, "few messages are in the language of a conversation"
