"""The common base of all settings, and types of fields that several of them use."""

from collections.abc import Iterator
from typing import Annotated, Any, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SecretStr, WithJsonSchema

from proxy.policy import SETTINGS


def _http_url(url: str) -> str:
    if not url.startswith(("http://", "https://")) or len(url) < len("http://a"):
        raise ValueError("must be an address that starts with http:// or https://")
    return url.rstrip("/")


def _one_or_more(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _none_if_empty(value: Any) -> Any:
    return None if value == "" else value


Key = Annotated[SecretStr | None, BeforeValidator(_none_if_empty)]
"""A secret. An empty one, from an unset variable with an empty default, is None."""

Globs = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Seconds = Annotated[float, Field(gt=0)]


class Base(BaseModel):
    """The base of all settings."""

    model_config = SETTINGS


Kind = TypeVar("Kind", bound=BaseModel)


def classes_of(annotation: Any, base: type[Kind]) -> Iterator[type[Kind]]:
    """Yield the subclasses of a class that a type names."""
    if isinstance(annotation, type) and issubclass(annotation, base):
        yield annotation
    for inner in get_args(annotation):
        yield from classes_of(inner, base)
