"""What an upstream has streamed: its bytes, and the events in them."""

import json
from typing import Any

from proxy.upstreams.base import Reply


async def read(reply: Reply) -> bytes:
    assert reply.chunks is not None
    return b"".join([chunk async for chunk in reply.chunks])


async def events(reply: Reply) -> list[Any]:
    text = (await read(reply)).decode()
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]
    return [item if item == "[DONE]" else json.loads(item) for item in data]
