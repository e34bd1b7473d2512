"""The section `vectors` of `config.yaml`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from proxy.config.fields import Base, HttpUrl, Key, Seconds


class EmbeddedVectors(Base):
    """A directory that all workers of one machine share."""

    kind: Literal["embedded"]

    directory: str | None = None
    """The directory, on a local disk. By default `vectors` in the directory of `state`; with `state` in memory, the
    vectors are in memory only."""

    max_mib: int = Field(default=256, ge=1)
    """The most MiB on disk: about 1 KB for each text. What was written longest ago leaves."""

    timeout: Seconds = 2.0
    """Seconds for one call, waiting for another worker's write included. After a timeout the index is not used for a
    while."""

    ttl: Seconds = 30 * 86400.0
    """Seconds for which vectors stay. They are made anew then, if they are still asked for."""


class QdrantVectors(Base):
    """A Qdrant server, which all replicas share: `penstock[vector]`. It gets vectors and hashes.

    Penstock evicts nothing there. A collection that is deleted is filled again.
    """

    kind: Literal["qdrant"]

    url: HttpUrl
    """Its address: `http://qdrant:6333`."""

    api_key: Key = None
    """The key, if the server needs one."""

    prefix: str = Field(default="penstock", pattern=r"^[A-Za-z0-9_]+$", max_length=40)
    """The prefix of the names of its collections."""

    timeout: Seconds = 1.0
    """Seconds for one call. After a timeout the server is not asked for a while."""


class NoVectors(Base):
    """Vectors are kept in memory only: after a restart they are made again."""

    kind: Literal["none"]


def _written_in_short(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return {"kind": "qdrant", "url": value} if "://" in value else {"kind": value}


_Kinds = Annotated[EmbeddedVectors | QdrantVectors | NoVectors, Field(discriminator="kind")]

VectorSettings = Annotated[_Kinds, BeforeValidator(_written_in_short, json_schema_input_type=str | _Kinds)]
"""A section, or in short an address, `embedded` or `none`."""
