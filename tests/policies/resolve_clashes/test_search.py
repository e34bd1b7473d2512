from policies.resolve_clashes.search import found
from proxy.chat import Message
from proxy.context import Identity, Uncached
from proxy.state.cache import OnceService
from tests.talk import assistant, user

TALK = [
    Message({"role": "system", "content": "Help."}),
    user("I live in Leeds."),
    assistant("Noted."),
    user("My budget is 500 euros."),
    assistant("Noted."),
    user("We moved to Cardiff."),
    assistant("Noted."),
    user("My budget is now 900 euros."),
]


async def test_places_are_those_of_the_messages() -> None:
    assert [(clash.older, clash.newer) for clash in await found(TALK, Uncached())] == [(1, 5), (3, 7)]


async def test_what_was_worked_out_turn_by_turn_is_what_is_worked_out_at_once() -> None:
    service = OnceService()
    once = service.bind(Identity("tenant"))
    for end in range(1, len(TALK) + 1):
        step_by_step = await found(TALK[:end], once)
        assert step_by_step == await found(TALK[:end], Uncached())
    service.close()


async def test_a_new_turn_reads_only_what_is_new() -> None:
    service = OnceService()
    once = service.bind(Identity("tenant"))
    await found(TALK[:-1], once)
    read: list[str] = []

    class Watched(Uncached):
        async def of_each(self, function, messages):  # type: ignore[no-untyped-def]
            return await once.of_each(function, messages)

        def known(self, keys):  # type: ignore[no-untyped-def]
            return once.known(keys)

        async def of_key(self, key, size, work):  # type: ignore[no-untyped-def]
            made = await once.of_key(key, size, work)
            read.append(str(len(made)))
            return made

    assert len(await found(TALK, Watched())) == 2
    assert read == ["1"]
    service.close()
