"""What Penstock and the process that runs litellm say to each other: frames of a kind, a length and bytes.

A connection is one call. Penstock sends one `CALL`; closing the connection drops the call. The process answers with
`LOG` frames at any time, and with one `ERROR`, or one `REPLY`, any number of `CHUNK` and one `FACTS`.
"""

import asyncio
import struct

CALL, REPLY, CHUNK, FACTS, ERROR, LOG = range(6)

_HEAD = struct.Struct("!BI")


def write_frame(writer: asyncio.StreamWriter, kind: int, content: bytes) -> None:
    """Write a frame; wait for `writer.drain()` where many follow."""
    writer.write(_HEAD.pack(kind, len(content)) + content)


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the kind and the content of the next frame. Raise `EOFError` where the other side has closed."""
    kind, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return kind, await reader.readexactly(length)
