"""What requests were parsed to belongs to their tenant, and goes with it."""

from typing import Any

from proxy.chat.parse import Body, ParsedList
from proxy.state.cache import Cache, TenantCache
from tests.chat.test_parse import body_of, large

Parsed = Cache[tuple[str, bytes], ParsedList[Any]]


def first_message(parsed: Parsed, tenant: str, body: Body) -> int:
    return id(body.parse(None, TenantCache(parsed, tenant)).messages[0])


def test_tenants_share_nothing_and_can_be_forgotten() -> None:
    parsed, body = Parsed(2**20), body_of(large("a"))
    kept = [body.parse(None, TenantCache(parsed, tenant)) for tenant in ("ann", "bob")]

    assert first_message(parsed, "ann", body) == id(kept[0].messages[0]) != id(kept[1].messages[0])
    assert parsed.forget("ann") == 2, "its messages and its tools"
    assert first_message(parsed, "ann", body) != id(kept[0].messages[0])
    assert first_message(parsed, "bob", body) == id(kept[1].messages[0])
