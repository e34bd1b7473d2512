"""Models that a context offers, which say what the test tells them."""

from collections.abc import Mapping, Sequence

from proxy.context import Pair


class SureJudge:
    """Is as sure of all pairs as it is told, for policies that ask what replaces what; `asked` has the pairs."""

    def __init__(self, sure: float | None = 1.0) -> None:
        self.sure = sure
        self.asked: list[Pair] = []

    async def contradictions(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        raise AssertionError("that is not the question")

    async def replacements(self, pairs: Sequence[Pair], *, wait: float) -> Sequence[float | None]:
        self.asked += pairs
        return [self.sure] * len(pairs)


class ToldEmbedder:
    """Knows the cosines that it is told: by a word in the query, then by one in the text."""

    name = "told"
    is_behind = False

    def __init__(self, cosines: Mapping[str, Mapping[str, float | None]] | None = None) -> None:
        self.cosines = cosines or {}
        self.texts: list[str] = []
        """Those that it was asked about last."""

    def near(self, query: str, text: str) -> float | None:
        known = [near for word, near in self.cosines.items() if word in query]
        found = (cosine for near in known for word, cosine in near.items() if word in text)
        return max(found, key=lambda cosine: cosine or 0.0, default=0.0)

    async def similarities(
        self, query: str, texts: Sequence[str], *, wait: float, order: Sequence[int] | None = None
    ) -> Sequence[float | None]:
        self.texts = [texts[place] for place in order or range(len(texts))]
        return [self.near(query, text) for text in texts]

    async def floor(self, query: str, *, wait: float) -> float | None:
        return 0.0

    async def nearest(self, queries: Sequence[str], texts: Sequence[str], *, wait: float) -> Sequence[float | None]:
        return [max((self.near(query, text) or 0.0 for text in texts), default=0.0) for query in queries]

    async def noise(self, texts: Sequence[str], *, wait: float) -> float | None:
        return 0.06

    def prepare(self, texts: Sequence[str]) -> None:
        raise AssertionError("nothing is prepared")
