"""How the families of models render a prompt: images, sound, tools. What no provider publishes is an estimate."""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from proxy.models.names import canonical
from proxy.models.vision import Vision, flat, gemini_tiles, patches, tiles


@dataclass(frozen=True, slots=True)
class Family:
    """What the models of a family have in common for counting."""

    vision: Vision
    terse_tools: bool = False
    """Whether tools are rendered as type declarations, as OpenAI does; else as their JSON."""
    function_start: int = 0
    """Tokens in front of each terse tool."""
    tools_frame: int = 100
    """Tokens of the instructions that come with any tools at all."""
    audio_rate: int = 10
    """Tokens of a second of sound."""
    digits: bool = False
    """Whether each digit is a token; OpenAI's vocabularies have three in one."""
    scripts: bool = False
    """Whether the vocabulary may be small, with fewer letters of other scripts than Latin in a token."""


_OPENAI = Family(tiles(85, 170), terse_tools=True, function_start=7, tools_frame=12)
# Anthropic, Tool use, Pricing: the system prompt that comes with tools has 346 tokens
_CLAUDE = Family(patches(side=28, budget=1568, original=1568), tools_frame=346)
_GEMINI = Family(gemini_tiles, tools_frame=0, audio_rate=32, digits=True)

_OPEN = Family(flat(768))
"""768 tokens an image is what Ollama itself assumes when it cuts prompts."""


def _openai(vision: Vision) -> Family:
    return replace(_OPENAI, vision=vision)


_FAMILIES: tuple[tuple[str, Family], ...] = (
    (r"gpt-3\.5|gpt-35|gpt-4(?![.o\d])", replace(_OPENAI, function_start=10)),
    (r"gpt-4o-mini", _openai(tiles(2833, 5667))),
    (r"(gpt-4\.1|gpt-5[\d.]*(-codex)?)-mini", _openai(patches(1.62))),
    (r"(gpt-4\.1|gpt-5[\d.]*)-nano", _openai(patches(2.46))),
    (r"o4-mini", _openai(patches(1.72))),
    (r"gpt-5\.[45](?!\d)", _openai(patches(1.0, budget=2500, original=10_000))),
    (r"gpt-(5\.[6-9]|[6-9])", _openai(patches(1.2, budget=2500, original=10_000))),
    (r"gpt-5", _openai(tiles(70, 140))),
    (r"o\d(?!\w)", _openai(tiles(75, 150))),
    (r"gpt-|chatgpt|codex|computer-use", _OPENAI),
    (
        r"claude-(opus-4-[7-9]|fable|mythos|(opus|sonnet|haiku)-([5-9]|\d\d)(?!\d))",
        replace(_CLAUDE, vision=patches(side=28, budget=4784, original=4784)),
    ),
    (r"claude", _CLAUDE),
    (r"gemini-3", replace(_GEMINI, vision=flat(1120))),
    (r"gemini", _GEMINI),
    (r"(meta-)?llama-?[34]|deepseek(?!-coder)|glm|kimi|phi-?4", _OPEN),
    (r"qwen|qwq|gemma|command|mistral-(large|medium|small|nemo)|magistral|ministral|devstral|codestral|pixtral",
     replace(_OPEN, digits=True)),
)  # fmt: skip

_OTHERS = replace(_OPEN, digits=True, scripts=True)


@lru_cache(maxsize=1024)
def family(name: str) -> Family:
    """Return the family of a model's name, provider prefixes allowed."""
    short = canonical(name)
    return next((found for pattern, found in _FAMILIES if re.match(pattern, short)), _OTHERS)
