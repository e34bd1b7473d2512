"""The section `records` of `config.yaml`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from proxy.config.fields import Base


class RecordsSettings(Base):
    """The records of requests for `/ui`, `/admin` and `/v1/explain`. In short `records: off`.

    Records are beside the state: in its directory, or on its Redis server, where all replicas share them. They never
    push out what requests need.
    """

    keep: bool = True
    """Record requests."""

    days: float = Field(default=7.0, gt=0)
    """Days after which a record goes."""

    max_mib: float = Field(default=64.0, ge=1)
    """MiB that all records may take, texts included. The oldest go first. 64 are some 25,000 requests."""

    per_second: float = Field(default=100.0, gt=0)
    """The most requests that a process records in a second, so that records cost next to nothing under any load. Bursts
    may have twice as many. `penstock_records_skipped_total` counts the others."""

    text: bool = False
    """Keep the text of requests as they came and as they were sent, and of answers. By default records have sizes, and
    no text. With it, operators read what users write: the log says so at each start."""


def _short(value: Any) -> Any:
    return {"keep": False} if value is False or value == "off" else value


Records = Annotated[
    RecordsSettings, BeforeValidator(_short, json_schema_input_type=RecordsSettings | Literal[False, "off"])
]
"""The records of requests."""
