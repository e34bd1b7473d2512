"""The section `judge` of `config.yaml`."""

from typing import Literal

from pydantic import Field

from proxy.config.fields import Base, Seconds


class JudgeSettings(Base):
    """A small chat model of an upstream, which answers with one word. Both texts are sent to it."""

    kind: Literal["upstream"] = "upstream"
    """The only kind."""

    model: str = Field(min_length=1)
    """A name that `models` routes. It gets the client's key only if its upstream is the one of the client's request;
    any other upstream needs a key of its own."""

    max_tokens: int = Field(default=16, ge=1)
    """The most tokens of an answer. One word is asked for; a model that reasons first needs more."""

    temperature: float = Field(default=0.0, ge=0, le=2)
    """The temperature."""

    timeout: Seconds = 10.0
    """Seconds for one call. Requests wait for as long as their step says, and no longer."""
