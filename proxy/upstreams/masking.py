"""The operator's keys in what an upstream answers: some echo the key of a request that they refuse."""

import re
from collections.abc import AsyncIterator, Sequence

from pydantic import SecretStr

from proxy.chat.sse import ByteStream
from proxy.upstreams.base import Reply

_MASK = b"[key]"
_SECRET = re.compile(r"auth|cookie|key|password|secret|token", re.IGNORECASE)
"""Parts of the names of headers and options that hold a secret."""

_SHORTEST = 8
"""Characters of a key; what is shorter, such as `EMPTY`, is no secret, and may be a word of an answer."""


def keys_of(settings: object) -> tuple[str, ...]:
    """Return the operator's keys among the settings of an upstream."""
    given: dict[str, SecretStr] = {**getattr(settings, "headers", {}), **getattr(settings, "options", {})}
    found = [value for name, value in given.items() if _SECRET.search(name)]
    if (key := getattr(settings, "api_key", None)) is not None:
        found.append(key)
    return tuple(each.get_secret_value().rpartition(" ")[2] for each in found)


class Mask:
    """A mask for the operator's keys in answers to clients."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys if len(key) >= _SHORTEST]

    def body(self, data: bytes) -> bytes:
        for key in self._keys:
            data = data.replace(key, _MASK)
        return data

    def text(self, text: str) -> str:
        return self.body(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def head(self, reply: Reply) -> None:
        if self._keys:
            reply.headers = [(name, self.body(value)) for name, value in reply.headers]
            reply.body = None if reply.body is None else self.body(reply.body)

    def chunks(self, chunks: ByteStream) -> AsyncIterator[bytes]:
        """Return a stream without the keys, also if one comes in two chunks."""
        return self._stream(chunks) if self._keys else aiter(chunks)

    async def _stream(self, chunks: ByteStream) -> AsyncIterator[bytes]:
        pending = b""
        async for chunk in chunks:
            data = self.body(pending + chunk)
            end = len(data) - self._begun(data)
            pending = data[end:]
            if end:
                yield data[:end]
        if pending:
            yield pending

    def _begun(self, data: bytes) -> int:
        """Return the length of the longest end of the data that begins a key. No key has a line break."""
        if data.endswith(b"\n"):
            return 0
        return max(
            next((n for n in range(min(len(key) - 1, len(data)), 0, -1) if data.endswith(key[:n])), 0)
            for key in self._keys
        )
