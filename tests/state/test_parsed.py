"""What requests were parsed to belongs to their tenant, and goes with it."""

from proxy.chat.parse import Body
from proxy.state.parsed import ParsedRequests
from tests.chat.test_parse import body_of, large


def first_message(parsed: ParsedRequests, tenant: str, body: Body) -> int:
    return id(body.parse(None, parsed.bound(tenant)).messages[0])


def test_tenants_share_nothing_and_can_be_forgotten() -> None:
    parsed, body = ParsedRequests(2**20), body_of(large("a"))
    kept = [body.parse(None, parsed.bound(tenant)) for tenant in ("ann", "bob")]

    assert first_message(parsed, "ann", body) == id(kept[0].messages[0]) != id(kept[1].messages[0])
    assert parsed.forget("ann") == 2, "its messages and its tools"
    assert first_message(parsed, "ann", body) != id(kept[0].messages[0])
    assert first_message(parsed, "bob", body) == id(kept[1].messages[0])


def test_what_is_larger_than_the_bound_is_not_kept() -> None:
    parsed, body = ParsedRequests(1000), body_of(large("a"))
    kept = body.parse(None, parsed.bound("ann"))

    assert first_message(parsed, "ann", body) != id(kept.messages[0])
