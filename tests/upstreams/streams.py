"""The events that an upstream has streamed."""

import json
from typing import Any

from proxy.upstreams.base import Reply
from tests.scripted import read


async def events(reply: Reply) -> list[Any]:
    text = (await read(reply)).decode()
    assert text.endswith("\n\n")
    data = [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]
    return [item if item == "[DONE]" else json.loads(item) for item in data]
