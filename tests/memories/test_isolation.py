"""Whatever is added, merged, deleted and forgotten, in whatever order: nobody sees what is another's."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.context import Identity
from proxy.identity import key_of, session_key
from proxy.memories import Memory, Owner, scope_of, scopes_seen
from tests.memories.made import Terms, draft, remembering

TENANTS = ("t", "t/user-x", "other", "a%2Fb")
USERS = ("", "ann", "bob", "ann/", "all", "../bob", "\ud800", "t\0user\0ann")
TEXTS = ("likes green tea", "likes nice green tea", "likes black tea", "lives in Rome")

WITHIN = ("", "ann", "shared", "a,b")
"""Names of sessions, agents and tasks."""

Names = tuple[str, str, str]


def owner(tenant: str, user: str) -> Owner:
    return Owner(tenant, key_of("user", tenant, user), None)


def within(tenant: str, session: str, agent: str, task: str) -> Names:
    """What stands for them in an identity."""
    return (session and session_key(session), key_of("agent", tenant, agent), key_of("task", tenant, task))


NAMES = st.tuples(*[st.sampled_from(WITHIN)] * 3)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "delete", "forget", "aggregate"]),
        st.sampled_from(TENANTS),
        st.sampled_from(USERS),
        NAMES,
        st.sampled_from(TEXTS),
    ),
    max_size=14,
)


@pytest.mark.parametrize("by", ["words", "meaning"])
@settings(max_examples=20, deadline=None)
@given(steps=STEPS, who=st.tuples(st.sampled_from(TENANTS), st.sampled_from(USERS)), asking=NAMES)
async def test_nothing_crosses(
    by: str, steps: list[tuple[str, str, str, Names, str]], who: tuple[str, str], asking: Names
) -> None:
    """What each may see is worked out from the names alone: a memory is seen by who has all names that it has."""
    owners = [owner(tenant, user) for tenant in TENANTS for user in USERS]
    assert len({each.key for each in owners}) == len(owners)
    async with remembering(backend=Terms() if by == "meaning" else None, merge_at=0.7) as service:

        async def everything() -> dict[tuple[Owner, str], Memory]:
            return {(each, memory.id): memory for each in owners for memory in await service.all(each)}

        stored: set[tuple[str, str, Names]] = set()
        after = await everything()
        for action, tenant, user, names, text in steps:
            before, source = after, repr((tenant, user, names))
            whose = owner(tenant, user)._replace(scope=scope_of(*within(tenant, *names)))
            if action == "add":
                await service.add(whose, [draft(text, sources=(source,))])
                stored.add((tenant, user, names))
            elif action == "delete":
                for _, id in before:
                    await service.delete(whose, id)
            elif action == "forget":
                await service.forget(whose)
            else:
                await service.aggregate(whose, 0.7)
            after = await everything()
            changed = {id: before.get(id) or after[id] for id in before | after if before.get(id) != after.get(id)}
            assert {(each, memory.scope) for (each, _), memory in changed.items()} <= {(whose.whole, whose.scope)}
            assert all(set(memory.sources) == {source} for memory in changed.values())
        asker = owner(*who)
        session, agent, task = within(asker.tenant, *asking)
        bound = service.bind(Identity(asker.tenant, session, asker.user, agent, task))
        fitting = {
            repr((tenant, user, names))
            for tenant, user, names in stored
            if (tenant, user) in (who, (who[0], ""))
            and all(name in ("", own) for name, own in zip(names, asking, strict=True))
        }
        seen = [memory.sources[0] in fitting for memory in after.values()]
        nearest = (await bound.nearest("green black tea in Rome", limit=50, wait=10)).items
        mine = {memory.id for memory, is_seen in zip(after.values(), seen, strict=True) if is_seen}
        assert {item.id for item in nearest} == mine, "all of what it may see, and nothing else"
        assert await bound.total() == sum(seen)
        ids = [*{memory.id for memory in after.values()}]
        assert [text is not None for text in await bound.texts(ids)] == [id in mine for id in ids]


def test_scopes_of_other_names_are_others() -> None:
    names = [within("t", *each) for each in product(WITHIN, repeat=3)]
    assert len({scope_of(*each) for each in names}) == len(names)
    assert all(scope_of(*each) in scopes_seen(*each) for each in names)
    assert scopes_seen("", "", "") == [""] == [scope_of()]
