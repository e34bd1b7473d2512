"""Tenants, told from the client's key."""

import string

import pytest

from proxy.identity import identify


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
