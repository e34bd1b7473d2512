"""Requests as bytes of a client, and how many of them a property is tried with."""

from hypothesis import settings

from proxy.body import Body
from proxy.chat import ChatRequest

thorough = settings(max_examples=150, deadline=None)


def parse(raw: bytes) -> ChatRequest:
    return Body(raw).parse()
