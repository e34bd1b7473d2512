"""The latest request of each conversation as it was parsed, so that the next one parses new parts only."""

from typing import Any

from proxy.chat.parse import ParsedList
from proxy.state.cache import Cache


class ParsedRequests:
    """Lists of messages and of tools by tenant and opening, within a bound of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._known: Cache[tuple[str, bytes], ParsedList[Any]] = Cache(max_bytes)

    def bound(self, tenant: str) -> "BoundParsed":
        """Return the requests of one tenant."""
        return BoundParsed(self._known, tenant)

    def forget(self, tenant: str) -> int:
        """Forget a tenant's requests; return how many lists that were."""
        return self._known.forget(tenant)


class BoundParsed:
    """The lists of one tenant's earlier requests."""

    __slots__ = ("_known", "_tenant")

    def __init__(self, known: Cache[tuple[str, bytes], ParsedList[Any]], tenant: str) -> None:
        self._known, self._tenant = known, tenant

    def get(self, opening: bytes) -> ParsedList[Any] | None:
        """Return the latest list with this opening."""
        return self._known.get((self._tenant, opening))

    def put(self, opening: bytes, parsed: ParsedList[Any]) -> None:
        """Keep one in place of the one before it."""
        self._known.put((self._tenant, opening), parsed, parsed.size)
