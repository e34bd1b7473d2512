"""Whatever is added, merged, deleted and forgotten, in whatever order: nobody sees what is another's."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.memories import Owner
from proxy.names import key_of
from tests.memories.made import Terms, draft, remembering

TENANTS = ("t", "t/user-x", "other", "a%2Fb")
USERS = ("", "ann", "bob", "ann/", "all", "../bob", "\ud800", "t\0user\0ann")
TEXTS = ("likes green tea", "likes nice green tea", "likes black tea", "lives in Rome")

Step = tuple[str, str, str, str]


def owner(tenant: str, user: str) -> Owner:
    return Owner(tenant, key_of("user", tenant, user))


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
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
            bound = (await service.bound(*each).nearest("green tea in Rome", limit=50, wait=10)).items
            own = {memory.id for memory in await service.all(each)}
            shared = {memory.id for memory in await service.all(Owner(each.tenant, ""))}
            assert {item.id for item in bound} <= own | shared
