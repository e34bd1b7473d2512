"""The section `state` of `config.yaml`."""

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from proxy.config.fields import Base, Key, Seconds


def _redis_url(url: SecretStr) -> SecretStr:
    try:
        parts = urlsplit(url.get_secret_value())
        place = parts.path if parts.scheme == "unix" else parts.hostname
        is_sound = parts.scheme in ("redis", "rediss", "unix") and bool(place) and parts.port != 0
    except ValueError:  # a port that is none, or a broken bracket
        is_sound = False
    # the message must not quote it: it may hold a password
    if not is_sound or parts.query or parts.fragment:
        raise ValueError("must be an address like redis://:PASSWORD@HOST:6379/0, rediss://HOST or unix:///PATH")
    if parts.scheme != "unix" and not re.fullmatch(r"(/\d*)?", parts.path):
        raise ValueError("must end in the number of a database, such as /0, or not at all")
    return url


RedisUrl = Annotated[SecretStr, AfterValidator(_redis_url)]
"""The address of a Redis server, which may hold its password."""


class _Kept(Base):
    ttl: Seconds = 30 * 86400.0
    """Seconds for which an original stays after its last use."""


class StateSettings(_Kept):
    """The store of originals, decisions, memories and counts between requests."""

    kind: Literal["disk", "memory"] = "disk"
    """`disk`: a directory that all workers of one machine share. `memory`: for one worker, lost with the process."""

    directory: str = "state"
    """On a local disk. Created when needed, and closed to other users (0700)."""

    max_mib: int = Field(default=1024, ge=8)
    """MiB of originals. When full, the least recently used leave, but nothing of the last 2 minutes."""


class RedisStateSettings(_Kept):
    """A Redis or Valkey server (6.2 or later) that several machines share: `pip install 'penstock[redis]'`.

    In short `state: redis://:PASSWORD@HOST:6379/0`. docs/how-to/replicas.md has the settings of the server.
    """

    kind: Literal["redis"]

    url: RedisUrl
    """`redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, `rediss://` for TLS, or `unix://[:PASSWORD@]/PATH`."""

    password: Key = None
    """The password, if it is not in the address, where it would have to be percent-encoded."""

    ca_file: str | None = None
    """Certificates (PEM) to check a `rediss://` server by; by default the system's."""

    prefix: str = Field(default="penstock", pattern=r"^[\w.{}-]{1,64}$")
    """The prefix of every key on the server. Processes with the same prefix share their state."""

    timeout: Seconds = 0.5
    """Seconds for one call, connecting included. Then the request goes on without it."""

    connections: int = Field(default=32, ge=1, le=1000)
    """Connections of one worker."""

    largest_mib: float = Field(default=8, gt=0, le=256)
    """MiB that one value may take, compressed. A larger original stays in the request."""


def _state(value: Any) -> Any:
    """Return a bare address as a server; a directory is the default."""
    if isinstance(value, str):
        return {"kind": "redis", "url": value}
    return {"kind": "disk", **value} if isinstance(value, dict) else value


_Kinds = Annotated[StateSettings | RedisStateSettings, Field(discriminator="kind")]
_Address = Annotated[str, Field(pattern=r"^(rediss?|unix)://")]

State = Annotated[_Kinds, BeforeValidator(_state, json_schema_input_type=_Kinds | _Address)]
"""The store, or in short its address."""
