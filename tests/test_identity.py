"""Tenants, told from the client's key; conversations, told by name or by how they begin."""

import itertools
import re
from typing import Any

import pytest

from proxy.chat import ChatRequest
from proxy.context import Identity
from proxy.identity import identify as identify_request
from proxy.testing import chat


def identify(key: str | None, conversation: str = "s u1", session: str | None = None) -> Identity:
    request: ChatRequest = chat(conversation)
    headers = {"authorization": key, "x-penstock-session": session}
    return identify_request({name: value for name, value in headers.items() if value is not None}, request)


def test_the_same_key_is_the_same_tenant_and_clients_without_one_share_one() -> None:
    assert identify(None).tenant == identify("").tenant == "anonymous"
    keys = ["Bearer a", "Bearer b", "bearer a", "Bearer a ", "Basic a", "a", "Bearer anonymous", "Bearer café", "�"]

    tenants = [identify(key).tenant for key in keys]

    assert tenants == [identify(key).tenant for key in keys]
    assert len({*tenants, "anonymous"}) == len(keys) + 1


def test_a_tenant_is_a_hash_and_a_conversation_with_a_name_is_told_by_it() -> None:
    who = identify("Bearer sk-very-secret")
    assert re.fullmatch("[0-9a-f]{32}", who.tenant)
    assert "secret" not in repr(who)
    mine = identify("k", "s u1", "mine").session
    assert mine == identify("k", "s u9", "mine").session
    assert mine not in (identify("k", "s u1", "other").session, identify("k", "s u1").session)
    assert "mine" not in mine


@pytest.mark.parametrize(("one", "other", "same"), [
    pytest.param("s u1", "s u1 a1 u2", True, id="its next turn"),
    pytest.param("s u1 a1 u2", "s u1 a1! t1 a1 u3", True, id="a branch of it"),
    pytest.param("s u1", "s u2", False, id="another first question"),
    pytest.param("s u1", "s u1 a1 u2 s2", True, id="instructions that come later"),
    pytest.param("s u1", "sother u1", False, id="other instructions"),
    pytest.param("s u1", "s s2 u1", False, id="more instructions"),
    pytest.param("s a1", "s a2", True, id="no question yet"),
])  # fmt: skip
def test_a_conversation_is_told_by_its_opening(one: str, other: str, same: bool) -> None:
    assert (identify("k", one).session == identify("k", other).session) is same


def asked(headers: dict[str, str], conversation: str = "s u1", **fields: Any) -> Identity:
    return identify_request({"authorization": "Bearer k", **headers}, chat(conversation, **fields))


def test_without_names_or_a_request_everything_is_where_it_was() -> None:
    assert asked({}).scope == asked({}).session == "opening-1cf3f7f00061521f93d412517ab7fbc8"
    named = asked({"x-penstock-session": "mine"}, user="u", safety_identifier="s")
    assert named.scope == named.session == "named-978d8c03fde87f479645f4f73d967dee"
    assert identify_request({}, None) == Identity("anonymous")
    headers = {"x-penstock-session": "s", "x-penstock-agent": "a"}
    assert identify_request(headers, None) == identify_request(headers, chat("u1"))


METADATA = {"user_id": "m", "session_id": "m", "conversation_id": "n", "agent": "m", "task": "m"}


@pytest.mark.parametrize("kind", ["user", "session", "agent", "task"])
def test_a_header_comes_before_the_body(kind: str) -> None:
    by_header = getattr(asked({f"x-penstock-{kind}": "h"}, metadata=METADATA, user="b", safety_identifier="b"), kind)
    assert by_header
    assert by_header == getattr(asked({f"x-penstock-{kind}": "h"}), kind)
    empty, named = asked({f"x-penstock-{kind}": ""}, metadata=METADATA), asked({f"x-penstock-{kind}": "m"})
    assert getattr(empty, kind) == getattr(named, kind)


@pytest.mark.parametrize(("fields", "kind", "name"), [
    ({"safety_identifier": "a", "user": "b", "metadata": {"user_id": "c"}}, "user", "a"),
    ({"user": "b", "metadata": {"user_id": "c"}}, "user", "b"),
    ({"metadata": {"user_id": "c"}}, "user", "c"),
    ({"metadata": {"conversation_id": "b", "session_id": "a"}}, "session", "a"),
    ({"metadata": {"conversation_id": "b", "thread_id": "c"}}, "session", "b"),
    ({"metadata": {"thread_id": "c", "session_id": None}}, "session", "c"),
    ({"metadata": {"agent_id": "b", "agent": "a"}}, "agent", "a"),
    ({"metadata": {"task_id": "b"}}, "task", "b"),
    ({"metadata": {"task_id": 7}}, "task", "7"),
    ({"metadata": {"task_id": {"a": [1]}}}, "task", '{"a":[1]}'),
])  # fmt: skip
def test_the_body_names_them_in_this_order(fields: dict[str, Any], kind: str, name: str) -> None:
    assert getattr(asked({}, **fields), kind) == getattr(asked({f"x-penstock-{kind}": name}), kind) != ""


@pytest.mark.parametrize("metadata", [None, [], "agent", 3, {}, {"agent": "", "session_id": ""}])
def test_what_names_nothing_changes_nothing(metadata: object) -> None:
    assert asked({}, metadata=metadata, user="", safety_identifier=None, prompt_cache_key="") == asked({})


def test_a_cache_key_tells_conversations_apart_that_open_alike_but_joins_none() -> None:
    keyed = asked({}, prompt_cache_key="app")
    assert not keyed.is_named
    assert len({keyed, asked({}), asked({}, prompt_cache_key="b"), asked({}, "s u2", prompt_cache_key="app")}) == 4
    assert keyed == asked({}, "s u1 a1 u2", prompt_cache_key="app")
    named = {"x-penstock-session": "mine"}
    assert asked(named, prompt_cache_key="app") == asked(named)


def test_the_task_is_that_of_the_last_user_message_where_nothing_else_names_one() -> None:
    request = chat("s u1 a1 u2 a2")
    tagged = [each.with_changes(x_penstock_task=n) for n, each in zip("abcde", request.messages, strict=True)]
    found = identify_request({"authorization": "Bearer k"}, request.with_messages(tagged))
    assert found.task == asked({"x-penstock-task": "d"}).task
    shared = [*tagged, tagged[-1].with_changes(role="user", x_penstock_task="shared")]
    assert identify_request({}, request.with_messages(shared)).task == ""


def test_names_are_hashes_of_any_text_and_count_within_the_tenant_only() -> None:
    names = ["mine", "../mine", "é", "\udcff", "x" * 10_000, "a/b", "*"]
    kinds = ("user", "agent", "task")
    found = [identify_request({f"x-penstock-{kind}": name for kind in kinds}, None, "t") for name in names]
    other = [identify_request({f"x-penstock-{kind}": name for kind in kinds}, None, "other") for name in names]
    keys = [getattr(each, kind) for each in (*found, *other) for kind in kinds]
    assert len(set(keys)) == len(keys) == 2 * 3 * len(names)
    for kind in kinds:
        assert all(re.fullmatch(rf"{kind}-[0-9a-f]{{32}}", getattr(each, kind)) for each in (*found, *other))


def test_scopes_are_apart() -> None:
    kinds = ("session", "agent", "task")
    named = [
        {f"x-penstock-{kind}": name for kind, name in zip(kinds, names, strict=True) if name}
        for names in itertools.product(("", "a", "b"), repeat=3)
    ]
    scopes = [asked(headers).scope for headers in named]
    assert len(set(scopes)) == 27
    assert not {asked({"x-penstock-user": "u"}).scope} - set(scopes), "the user is no part of it"
