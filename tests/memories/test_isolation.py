"""Whatever is added, merged, deleted and forgotten, in whatever order: nobody sees what is another's."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat.names import key_of
from proxy.context import Identity
from proxy.identity import session_key
from proxy.memories import Owner, scope_of, scopes_seen
from tests.memories.made import Terms, draft, remembering

TENANTS = ("t", "t/user-x", "other", "a%2Fb")
USERS = ("", "ann", "bob", "ann/", "all", "../bob", "\ud800", "t\0user\0ann")
TEXTS = ("likes green tea", "likes nice green tea", "likes black tea", "lives in Rome")

WITHIN = ("", "ann", "shared", "a,b")
"""Names of sessions, agents and tasks."""

Step = tuple[str, str, str, str]


def owner(tenant: str, user: str) -> Owner:
    return Owner(tenant, key_of("user", tenant, user))


def within(tenant: str, session: str, agent: str, task: str) -> tuple[str, str, str]:
    """What stands for them in an identity."""
    return (session and session_key(session), key_of("agent", tenant, agent), key_of("task", tenant, task))


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "delete", "forget", "aggregate"]),
        st.sampled_from(TENANTS),
        st.sampled_from(USERS),
        st.sampled_from(TEXTS),
    ),
    max_size=14,
)


@pytest.mark.parametrize("by", ["words", "meaning"])
@settings(max_examples=12, deadline=None)
@given(steps=steps)
async def test_nothing_crosses(by: str, steps: list[Step]) -> None:
    owners = [owner(tenant, user) for tenant in TENANTS for user in USERS]
    assert len({each.key for each in owners}) == len(owners)
    async with remembering(backend=Terms() if by == "meaning" else None, merge_at=0.7) as service:
        before: dict[Owner, list[object]] = {each: [] for each in owners}
        for action, tenant, user, text in steps:
            whose = owner(tenant, user)
            if action == "add":
                await service.add(whose, [draft(text, sources=(tenant, repr(user)))])
            elif action == "delete":
                for other in await service.all(owner("t", "ann")):
                    await service.delete(whose, other.id)
            elif action == "forget":
                await service.forget(whose)
            else:
                await service.aggregate(whose, 0.7)
            after = {each: list[object](await service.all(each)) for each in owners}
            assert {each for each in owners if after[each] != before[each]} <= {whose}
            before = after
        for each in owners:
            sources = {source for memory in await service.all(each) for source in memory.sources}
            assert not sources or sources == {
                each.tenant,
                next(repr(u) for u in USERS if owner(each.tenant, u) == each),
            }
            bound = (
                await service.bind(Identity(each.tenant, user=each.user)).nearest(
                    "green tea in Rome", limit=50, wait=10
                )
            ).items
            own = {memory.id for memory in await service.all(each)}
            shared = {memory.id for memory in await service.all(Owner(each.tenant, ""))}
            assert {item.id for item in bound} <= own | shared


scoped_steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "delete", "forget", "aggregate"]),
        st.sampled_from(["ann", ""]),
        st.tuples(*[st.sampled_from(WITHIN)] * 3),
        st.sampled_from(TEXTS),
    ),
    max_size=14,
)


@pytest.mark.parametrize("by", ["words", "meaning"])
@settings(max_examples=15, deadline=None)
@given(steps=scoped_steps, asking=st.tuples(*[st.sampled_from(WITHIN)] * 3))
async def test_nothing_crosses_from_one_scope_of_a_user_to_another(
    by: str, steps: list[tuple[str, str, tuple[str, str, str], str]], asking: tuple[str, str, str]
) -> None:
    """What each may see is worked out from the names alone: a memory is seen by who has all names that it has."""
    async with remembering(backend=Terms() if by == "meaning" else None, merge_at=0.7) as service:
        stored: set[tuple[str, str, tuple[str, str, str]]] = set()
        whole = {user: Owner("t", key_of("user", "t", user), None) for user in ("ann", "")}
        for action, user, names, text in steps:
            whose = whole[user]._replace(scope=scope_of(*within("t", *names)))
            before = {(owner, each.id): each for owner in whole.values() for each in await service.all(owner)}
            if action == "add":
                await service.add(whose, [draft(text, sources=(repr((user, names)),))])
                stored.add((text, user, names))
            elif action == "delete":
                for _, id in before:
                    await service.delete(whose, id)
            elif action == "forget":
                await service.forget(whose)
            else:
                await service.aggregate(whose, 0.7)
            after = {(owner, each.id): each for owner in whole.values() for each in await service.all(owner)}
            changed = [
                before.get(id) or after[id] for id in before.keys() | after.keys() if before.get(id) != after.get(id)
            ]
            assert {each.scope for each in changed} <= {whose.scope}
            assert all(set(each.sources) == {repr((user, names))} for each in changed)
        session, agent, task = within("t", *asking)
        bound = service.bind(Identity("t", session, whole["ann"].user, agent, task))
        fitting = {
            repr((user, names))
            for _, user, names in stored
            if all(name in ("", own) for name, own in zip(names, asking, strict=True))
        }
        everything = [each for owner in whole.values() for each in await service.all(owner)]
        seen = [each for each in everything if each.sources[0] in fitting]
        nearest = (await bound.nearest("green black tea in Rome", limit=50, wait=10)).items
        assert {item.id for item in nearest} == {each.id for each in seen}, "all of what it may see, and nothing else"
        assert await bound.total() == len(seen)
        texts = await bound.texts([each.id for each in everything])
        assert [text is not None for text in texts] == [each in seen for each in everything]


def test_scopes_of_other_names_are_others() -> None:
    names = [within("t", *each) for each in product(WITHIN, repeat=3)]
    assert len({scope_of(*each) for each in names}) == len(names)
    assert all(scope_of(*each) in scopes_seen(*each) for each in names)
    assert scopes_seen("", "", "") == [""] == [scope_of()]
