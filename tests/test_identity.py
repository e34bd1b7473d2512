"""Tenants, told from the client's key; conversations, told by name or by how they begin."""

import string

import pytest

from proxy.chat import ChatRequest
from proxy.context import Identity
from proxy.identity import identify as identify_request
from proxy.testing import chat


def identify(key: str | None, conversation: str = "s u1", session: str | None = None) -> Identity:
    request: ChatRequest = chat(conversation)
    headers = {"authorization": key, "x-penstock-session": session}
    return identify_request({name: value for name, value in headers.items() if value is not None}, request)


@pytest.mark.parametrize("header", [None, ""])
def test_clients_without_a_key_share_one_tenant(header: str | None) -> None:
    assert identify(header).tenant == "anonymous"


def test_the_same_key_is_the_same_tenant_and_another_key_another_one() -> None:
    keys = [
        "Bearer a",
        "Bearer b",
        "bearer a",
        "Bearer a ",
        "Basic a",
        "a",
        "Bearer anonymous",
        "Bearer caf\xe9",
        "\udcff",
    ]

    tenants = [identify(key).tenant for key in keys]

    assert tenants == [identify(key).tenant for key in keys]
    assert len({*tenants, "anonymous"}) == len(keys) + 1


def test_a_tenant_is_a_hash_that_can_be_part_of_a_key_or_a_path() -> None:
    tenant = identify("Bearer sk-very-secret").tenant

    assert len(tenant) == 32
    assert set(tenant) <= set(string.hexdigits.lower())
    assert "secret" not in repr(identify("Bearer sk-very-secret"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("s u1", "s u1 a1 u2", True, id="its next turn"),
        pytest.param("s u1 a1 u2", "s u1 a1! t1 a1 u3", True, id="a branch of it"),
        pytest.param("s u1", "s u2", False, id="another first question"),
        pytest.param("s u1", "sother u1", False, id="other instructions"),
    ],
)
def test_a_conversation_is_told_by_its_opening(one: str, other: str, same: bool) -> None:
    assert (identify("k", one).session == identify("k", other).session) is same


def test_a_conversation_with_a_name_is_told_by_it() -> None:
    assert identify("k", "s u1", "mine").session == identify("k", "s u9", "mine").session
    assert identify("k", "s u1", "mine").session != identify("k", "s u1", "other").session
    assert identify("k", "s u1", "mine").session != identify("k", "s u1").session
    assert "mine" not in identify("k", "s u1", "mine").session
