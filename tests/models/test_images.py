"""Image sizes from the first bytes of files, and what images cost by family."""

import base64
import struct

import pytest

from proxy.models.families import Dimensions, data_url_dimensions, family

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBB", 13, b"IHDR", 1800, 2400, 8, 2, 0, 0, 0)
GIF = b"GIF89a" + struct.pack("<HH", 320, 200)
WEBP = b"RIFF\x00\x00\x00\x00WEBP"
WEBP_LOSSY = WEBP + b"VP8 " + bytes(4) + b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 550, 368)
WEBP_LOSSLESS = WEBP + b"VP8L" + bytes(4) + b"\x2f" + struct.pack("<I", (386 - 1) | (395 - 1) << 14)
WEBP_EXTENDED = WEBP + b"VP8X" + bytes(8) + (1024 - 1).to_bytes(3, "little") + (768 - 1).to_bytes(3, "little")
FRAME = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 768, 1024) + bytes(10)
CAMERA = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
TABLES = b"\xff\xc4" + struct.pack(">H", 20) + bytes(18)


def url(data: bytes, kind: str = "image/png", padding: int = 200) -> str:
    return f"data:{kind};base64,{base64.b64encode(data + bytes(padding)).decode()}"


@pytest.mark.parametrize(("address", "dimensions"), [
    pytest.param(url(PNG), (1800, 2400), id="png"),
    pytest.param(url(PNG).replace("data:", "DATA:"), (1800, 2400), id="png, scheme in capitals"),
    pytest.param(url(GIF), (320, 200), id="gif"),
    pytest.param(url(WEBP_LOSSY), (550, 368), id="webp, lossy"),
    pytest.param(url(WEBP_LOSSLESS), (386, 395), id="webp, lossless"),
    pytest.param(url(WEBP_EXTENDED), (1024, 768), id="webp, extended"),
    pytest.param(url(b"\xff\xd8" + FRAME), (1024, 768), id="jpeg"),
    pytest.param(url(b"\xff\xd8" + CAMERA * 3 + TABLES + FRAME), (1024, 768), id="jpeg behind camera data"),
    pytest.param(url(b"\xff\xd8" + CAMERA * 9 + FRAME), None, id="jpeg behind too much of it"),
    pytest.param(url(b"\xff\xd8\xff"), None, id="jpeg, cut off"),
    pytest.param(url(b"BM" + bytes(60)), None, id="an unknown format"),
    pytest.param(url(PNG[:16]), None, id="png of no size"),
    pytest.param("data:image/svg+xml;utf8,<svg/>", None, id="not base64"),
    pytest.param("data:image/png;base64,????", None, id="not base64 at all"),
    pytest.param("https://example.org/a.png", None, id="a web address"),
])  # fmt: skip
def test_dimensions(address: str, dimensions: Dimensions | None) -> None:
    assert data_url_dimensions(address) == dimensions


@pytest.mark.parametrize(("model", "dimensions", "detail", "tokens"), [
    # OpenAI, Images and vision: the worked examples
    ("gpt-4o", (1024, 1024), "high", 765),
    ("gpt-4o", (2048, 4096), "high", 1105),
    ("gpt-4o", (4096, 8192), "low", 85),
    ("gpt-4.1-mini", (1024, 1024), "high", int(1024 * 1.62)),
    ("gpt-4.1-mini", (1800, 2400), "high", int(1452 * 1.62)),
    # the tables of the same page
    ("openai/gpt-4o-mini-2024-07-18", (1024, 1024), "high", 2833 + 4 * 5667),
    ("gpt-5", (1024, 1024), "high", 70 + 4 * 140),
    ("o1", (1024, 1024), "high", 75 + 4 * 150),
    ("o3", (1024, 1024), "low", 75),
    ("gpt-5-mini", (64, 64), "low", int(4 * 1.62)),
    ("gpt-5.5", (1024, 1024), "high", 1024),
    ("gpt-5.5", (4000, 4000), "original", 10_000),
    ("gpt-5.6-sol", (1024, 1024), "auto", int(1024 * 1.2)),
    # other providers
    ("claude-sonnet-4-5", (1092, 1092), "auto", 39 * 39),
    ("anthropic/claude-opus-4-7", (1960, 1960), "auto", 69 * 69),
    ("gemini-2.5-pro", (384, 384), "auto", 258),
    ("gemini-2.5-pro", (1536, 768), "auto", 516),
    ("gemini-3-pro-preview", (4000, 4000), "auto", 1120),
])  # fmt: skip
def test_tokens(model: str, dimensions: Dimensions | None, detail: str, tokens: int) -> None:
    assert family(model).vision.tokens(dimensions, detail) == tokens


@pytest.mark.parametrize("dimensions", [(1, 1), (1, 60_000), (60_000, 1), (2**31, 2**31), (16383, 3)])
@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5.6", "claude-3-opus", "gemini-2.5-pro", "llava"])
@pytest.mark.parametrize("detail", ["low", "high", "auto", "original", "??"])
def test_absurd_images_cost_something_bounded(model: str, dimensions: Dimensions, detail: str) -> None:
    assert 0 < family(model).vision.tokens(dimensions, detail) < 60_000
