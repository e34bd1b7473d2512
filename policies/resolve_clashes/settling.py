"""Whether the older statement of a clash is marked where it stands, behind what the provider may have cached.

That is free where the bytes in front of it are not those of the last request, so that it is sent anew in any case, as
when a cut has put a summary there; or where the cache has forgotten all of it. What was decided is settled under the
bytes in front of it, and holds for as long as they do.
"""

from collections.abc import Sequence
from hashlib import blake2b

from policies.resolve_clashes.dialogue import Clash
from proxy.chat import Message, digest
from proxy.context import Memo
from proxy.history.earlier import PreviousRequest

_MARK, _STAY = "mark", "stay"


class Settling:
    """Goes through the messages of a request as they are sent, the system messages left out."""

    def __init__(self, memo: Memo, before: PreviousRequest) -> None:
        self._memo, self._before = memo, before
        self._sent = blake2b(b"%d" % before.cold_start, digest_size=16)
        self._unread: list[Message] = []

    def add(self, messages: Sequence[Message]) -> None:
        """Messages that are sent next."""
        self._unread += [message for message in messages if not message.is_system]

    async def is_marked(
        self, clash: Clash, older: Message, said: Sequence[Message], *, newer: int, relaid: bool
    ) -> bool:
        """Whether a clash is marked in the message that comes next, which now is `older`; `said` is what was said.

        `newer` is the place of the message that makes the clash among the client's, and `relaid` says whether an
        earlier step has changed something in front of the older one, at some time. If the request before this one had
        the clash and nothing is settled for the bytes in front of it, they are new, or what was settled is lost: that
        costs the cache, once.
        """
        if not relaid and not self._before.cold_start:
            return False
        for message in self._unread:
            self._sent.update(digest(message))
        self._unread.clear()
        name = self._sent.copy()
        told = (older, said[clash.older], said[clash.newer])
        name.update(b"".join(map(digest, told)) + repr(clash[1:3] + clash[4:6]).encode())
        free = self._before.is_cold or (relaid and newer < self._before.seen)
        return await self._memo.settle(f"clash/{name.hexdigest()}", _MARK if free else _STAY) == _MARK
