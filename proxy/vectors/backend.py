"""The makers of vectors: a model in this process, or a server."""

from collections.abc import Sequence
from typing import Protocol

from proxy.vectors.scale import Scale

LONGEST = 16_000
"""Characters of a text that are looked at; what a text is about stands before that."""


class EmbeddingFailed(Exception):
    """No vectors could be made. `cause` is one word, fit for logs: no path, no address and no content."""

    def __init__(self, cause: str, *, lasting: bool = False) -> None:
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
        """The mark of all that vectors depend on besides the text, known without loading: one's are comparable."""

    @property
    def batch(self) -> int:
        """The most texts to give it at once."""

    @property
    def characters(self) -> int:
        """The most characters to give it at once, if that is more than one text: a query waits for them."""

    @property
    def is_quick(self) -> bool:
        """True if a vector is made sooner than it is read: such vectors are not kept in the index."""

    @property
    def has_roles(self) -> bool:
        """True if a text has other vectors as a query than as a document."""

    @property
    def scale(self) -> Scale | None:
        """The range of its cosines; None if it is to be measured."""

    async def load(self) -> None:
        """Get ready. Raises `EmbeddingFailed`."""

    async def embed(self, texts: Sequence[str], *, query: bool = False) -> Sequence[bytes]:
        """Return the packed vectors of each text, empty where it can have none. Raises `EmbeddingFailed`."""

    async def aclose(self) -> None:
        pass
