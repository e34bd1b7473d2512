"""A bounded memory of counts."""

from collections.abc import Sequence


class Memo:
    """Numbers by key, the least recently used generation forgotten. Safe to use from any thread."""

    def __init__(self, entries: int) -> None:
        """`entries` is the most that are kept; each takes about 130 bytes."""
        self._half = max(1, entries // 2)
        self.clear()

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def clear(self) -> None:
        """Forget everything."""
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def get(self, key: int) -> int | None:
        """The number at a key, if it is still known."""
        value = self._young.get(key)
        if value is None:
            value = self._old.get(key)
            if value is not None:
                self.put(key, value)
        return value

    def get_each(self, keys: Sequence[int]) -> list[int | None]:
        """The number at each key."""
        found = list(map(self._young.get, keys))
        return [self.get(key) if value is None else value for key, value in zip(keys, found, strict=True)]

    def put(self, key: int, value: int) -> None:
        """Keep a number."""
        if len(self._young) >= self._half:
            self._old, self._young = self._young, {}
        self._young[key] = value
