"""Whose request it is."""

from hashlib import blake2b

from proxy.context import Identity


def identify(authorization: str | None) -> Identity:
    """The tenant behind a client's `Authorization` header; a hash, from which the key cannot be told.

    Clients without a key share one tenant.
    """
    if not authorization:
        return Identity(tenant="anonymous")
    return Identity(tenant=blake2b(authorization.encode(errors="surrogateescape"), digest_size=16).hexdigest())
