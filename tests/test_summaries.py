import pytest

from proxy.chat import Message
from proxy.context import Identity
from proxy.history.summaries import Leaving, SummarySize, archived, fingerprint, levels, summarised
from proxy.state.cache import OnceService
from proxy.testing import MemoryArchive, chat, context


@pytest.mark.parametrize(("cuts", "parts"), [
    (1, [1]), (2, [2]), (3, [2, 3]), (4, [4]), (7, [4, 6, 7]), (21, [16, 20, 21]), (43, [32, 40, 42, 43]),
])  # fmt: skip
def test_the_older_the_cuts_the_more_share_an_entry(cuts: int, parts: list[int]) -> None:
    assert levels(range(1, cuts + 1)) == parts


def test_fingerprints_tell_messages_apart() -> None:
    one, same, other = chat("u1 a1").messages, chat("u1 a1").messages, chat("a1 u1").messages
    assert fingerprint(one) == fingerprint(same)
    assert len({fingerprint(one), fingerprint(other), fingerprint(one[:1])}) == 3


class Counting(MemoryArchive):
    hashed = 0

    def handle(self, content: str) -> str:
        self.hashed += 1
        return super().handle(content)


async def test_what_left_is_read_once() -> None:
    archive, once = Counting(), OnceService().bind(Identity("t"))
    request = chat(" ".join(f"u{n}{'x' * 200} a{n}" for n in range(8)))
    for at in (8, 9, 10):
        talk = [Message(message, message.raw) for message in request.messages[: at + 2]]
        leaving = Leaving(talk, talk, (4, 8), 8)
        ctx = context(request, archive=archive, once=once)
        handles = await archived(leaving, ctx)
        assert handles is not None
        assert await summarised(leaving, handles, SummarySize(400), ctx) is not None
    assert archive.hashed == 2, "once for its handle, once to keep it"


async def test_what_the_archive_lost_is_kept_again() -> None:
    archive, once = MemoryArchive(), OnceService().bind(Identity("t"))
    talk = chat("u1 a1 u2 a2").messages
    ctx = context(archive=archive, once=once)
    first = await archived(Leaving(talk, talk, (2,), 3), ctx)
    archive.contents.clear()
    assert await archived(Leaving(talk, talk, (2,), 3), ctx) == first
    assert set(archive.contents) == set(first or ())
    archive.contents.clear()
    archive.broken = True
    assert await archived(Leaving(talk, talk, (2,), 3), ctx) is None


async def test_entries_are_listed_by_one_where_there_are_more_than_two() -> None:
    archive = MemoryArchive()
    talk = chat(" ".join(f"u{n} a{n}" for n in range(1, 31))).messages
    handles = await archived(Leaving(talk, talk, (8, 16, 24, 32, 40, 48, 56), 58), context(archive=archive))
    assert handles is not None
    (handle,) = handles
    listed = archive.contents[handle].splitlines()[1:]
    assert [line.partition(":")[0] for line in listed] == ["1-16", "17-24", "25-28"]
    for line, words in zip(listed, ("u1", "u17", "u25"), strict=True):
        entry = archive.contents[line.partition('recall("')[2].partition('"')[0]]
        assert f'"{words}"' in entry.splitlines()[0]
        assert line.endswith(f" {words} [...]")
