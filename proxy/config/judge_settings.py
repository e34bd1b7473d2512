"""The section `judge` of `config.yaml`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from proxy.config.fields import Base, Seconds


class JudgeSettings(Base):
    """A model in this process that tells whether one text contradicts another: `pip install 'penstock[semantic]'`."""

    kind: Literal["cross-encoder"] = "cross-encoder"
    """The default kind."""

    model: str = Field(min_length=1)
    """A directory with a cross-encoder for natural-language inference, one of whose labels is `contradiction`. None
    comes with Penstock."""

    threads: int = Field(default=1, ge=1)
    """Threads of one computation."""


class UpstreamJudgeSettings(Base):
    """A small chat model of an upstream, which answers with one word. Both texts are sent to it."""

    kind: Literal["upstream"]

    model: str = Field(min_length=1)
    """A name that `models` routes. It gets the client's key only if its upstream is the one of the client's request;
    any other upstream needs a key of its own."""

    max_tokens: int = Field(default=16, ge=1)
    """The most tokens of an answer. One word is asked for; a model that reasons first needs more."""

    temperature: float = Field(default=0.0, ge=0, le=2)
    """The temperature."""

    timeout: Seconds = 10.0
    """Seconds for one call. Requests wait for as long as their step says, and no longer."""


def _kind(value: Any) -> Any:
    return {"kind": "cross-encoder", **value} if isinstance(value, dict) else value


Judge = Annotated[
    JudgeSettings | UpstreamJudgeSettings,
    Field(discriminator="kind"),
    BeforeValidator(_kind),
]
"""A model of either kind; one that names no kind is a directory."""
