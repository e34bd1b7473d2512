"""The 400 that a body is refused with."""

import json

import pytest

from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body

HI = b'[{"role":"user","content":"hi"}]'


def refusal(raw: bytes) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        Body(raw).parse()
    assert caught.value.status == 400
    json.loads(caught.value.body())
    return caught.value
