"""What makes vectors: a model in this process, or a server."""

from collections.abc import Sequence
from typing import Protocol

LONGEST = 16_000
"""Characters of a text that are looked at; what a text is about stands before that."""


class EmbeddingFailed(Exception):
    """No vectors could be made. `cause` is one word, fit for logs: no path, no address and no content."""

    def __init__(self, cause: str, *, lasting: bool = False) -> None:
        """`lasting` says that only a restart can help."""
        super().__init__(cause)
        self.cause = cause
        self.lasting = lasting


class Backend(Protocol):
    """Makes vectors. Nothing is loaded or connected before the first call."""

    @property
    def name(self) -> str:
        """The model, for people."""

    @property
    def version(self) -> str:
        """What vectors depend on besides the text: those of one version are comparable. Known without loading."""

    @property
    def batch(self) -> int:
        """The most texts to give it at once."""

    @property
    def characters(self) -> int:
        """The most characters to give it at once, if that is more than one text: a query waits for them."""

    async def load(self) -> None:
        """Get ready. Raises `EmbeddingFailed`."""

    async def embed(self, texts: Sequence[str]) -> Sequence[bytes]:
        """The packed vectors of each text (`proxy.vectors.packing`); empty where it cannot have one.

        Raises `EmbeddingFailed`.
        """

    async def aclose(self) -> None:
        """Give back threads and connections; what is under way is not waited for."""
