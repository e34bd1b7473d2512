"""Requests as bytes of a client, and how many of them a property is tried with."""

from hypothesis import settings

from proxy.chat import ChatRequest
from proxy.chat.parse import Body

thorough = settings(max_examples=60, deadline=None)


def parse(raw: bytes) -> ChatRequest:
    return Body(raw).parse()
