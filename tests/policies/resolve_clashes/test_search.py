from policies.resolve_clashes.clashes import find_clashes
from proxy.chat import Message
from proxy.context import Identity, Uncached
from proxy.state.cache import OnceService
from tests.talk import assistant, user

TALK = [
    Message({"role": "system", "content": "Help."}),
    user("The meeting is on Monday."),
    assistant("Noted."),
    user("My budget is 500 euros."),
    assistant("Noted."),
    user("The meeting has moved to Friday."),
    assistant("Noted."),
    user("My budget is now 900 euros."),
]


async def test_find_clashes_returns_places_of_the_messages() -> None:
    assert [(clash.older, clash.newer) for clash in await find_clashes(TALK, Uncached())] == [(1, 5), (3, 7)]


async def test_find_clashes_returns_the_same_turn_by_turn() -> None:
    service = OnceService()
    once = service.bind(Identity("tenant"))
    for end in range(1, len(TALK) + 1):
        step_by_step = await find_clashes(TALK[:end], once)
        assert step_by_step == await find_clashes(TALK[:end], Uncached())
    service.close()
