"""A chat request in the terms of Anthropic's own API (`POST /v1/messages`). Pure; a wrong JSON type is a `BadRequest`.

What Anthropic cannot take is left out and named, never refused: `strict_params` is for those who want that.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from proxy.chat import ChatRequest, chosen_tools
from proxy.chat.errors import wrong
from proxy.models.families import canonical
from proxy.upstreams.anthropic.messages import AnthropicMessages
from proxy.upstreams.request_fields import BOOKKEEPING, FIELDS, CheckedRequest, Translation, unsupported

_TABLE: Mapping[str, Any] = FIELDS["anthropic"]
NATIVE = frozenset(_TABLE["native"])
"""Anthropic's own fields, which a client may send beside OpenAI's."""
READ = NATIVE | BOOKKEEPING | set(_TABLE["read"])
"""The fields that the translation reads."""
LEAST_BUDGET = 1024
"""Tokens of thinking."""
LEVELS: list[str] = _TABLE["levels"]
BUDGETS: Mapping[str, int] = _TABLE["budgets"]
"""Tokens of thinking for OpenAI's `reasoning_effort`, for models that take a budget."""

OWN_CHOICES = frozenset({"auto", "none", "any", "tool"})

OUTPUT_CONFIG = "output_config"

_FUNCTION = frozenset({"type", "function", "strict", "parameters"})
"""Keys of OpenAI's tools that are translated."""


class ClaudeFeatures(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The features of a family of Claudes, of `proxy/data/anthropic.json`; the first matching row counts."""

    match: tuple[str, ...]
    thinking: Literal["none", "budget", "adaptive", "always"]
    """`budget`: a client sets a budget of tokens. `adaptive`: the model thinks as much as it needs. `always`: so it
    does in every answer."""
    least: str = "disabled"
    """The type of `thinking` that asks for the least of it."""
    efforts: tuple[str, ...] = ()
    """The values of `output_config.effort`, from the least on; none where the model has no such field."""
    system_messages: bool = False
    """`role: system` may stand among the messages."""
    sampling: bool = True
    """`temperature`, `top_p` and `top_k` may be set."""
    forced_tools: bool = True
    """A tool call can be demanded."""
    structured: bool = True
    """Answers and tool calls can be held to a schema."""


@lru_cache(maxsize=1024)
def features_of(model: str) -> ClaudeFeatures:
    """Return the features of a model by the upstream's name; an unknown model has those of the newest."""
    name = canonical(model)
    return next(each for each in _table() if any(fnmatchcase(name, glob) for glob in each.match))


@cache
def _table() -> tuple[ClaudeFeatures, ...]:
    text = (files("proxy") / "data" / "anthropic.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[ClaudeFeatures, ...])


class AnthropicRequest:
    """A request in the form of Messages. Raises `BadRequest` for what cannot be translated."""

    def __init__(self, request: ChatRequest, *, most: int, room: int) -> None:
        """`most` is the longest answer of the model, `room` what the window leaves for one, both in tokens."""
        self._asked = asked = CheckedRequest(request)
        self._rest, self._ignored = asked.rest, asked.ignored
        self._able = features_of(request.model)
        self._messages = AnthropicMessages(asked, system_messages=self._able.system_messages)
        limits = ((name, self._rest[name]) for name in request.limits if name in self._rest)
        name, wanted = next(limits, ("", max(1, room)))  # without a limit, all the room that there is
        if name and wanted > most:
            self._ignored.add(name)
        self._limit = min(int(wanted), most)

    def translation(self) -> Translation:
        rest, stops = self._rest, self._asked.stops
        body: dict[str, Any] = {
            "model": self._asked.model,
            "max_tokens": self._limit,
            "system": self._messages.system or None,
            "messages": self._messages.translated,
            "stream": rest.get("stream") or None,
            "metadata": self._metadata(),
            "service_tier": _TABLE["tiers"].get(rest.get("service_tier")),
            "stop_sequences": [stop for stop in stops if stop.strip()] or None,  # it refuses those of white space
            **{name: rest[name] for name in sorted(NATIVE & rest.keys())},
        }
        body[OUTPUT_CONFIG] = {**self._format(), **rest.get(OUTPUT_CONFIG, {})}
        tools, choice = self._tools()
        body |= {"tools": tools or None, "tool_choice": choice}
        self._think(body)
        self._sample(body)
        if "service_tier" in rest and body["service_tier"] is None:
            self._ignored.add("service_tier")
        if len(body["stop_sequences"] or ()) < len(stops):
            self._ignored.add("stop")
        return self._asked.translation({name: value for name, value in body.items() if value != {}}, READ)

    def _metadata(self) -> dict[str, str] | None:
        """Return the user for Anthropic's search for abuse: an opaque name, no address or number of a person."""
        own = self._rest.get("metadata", {}).get("user_id")
        user = own or self._rest.get("safety_identifier") or self._rest.get("user")
        if user is None:
            return None
        if "@" in user or user.lstrip("+").replace("-", "").replace(" ", "").isdigit():
            self._ignored.add("user")
            return None
        return {"user_id": user}

    def _format(self) -> dict[str, Any]:
        """Return the form of the answer if it is a schema; a demand for any JSON has no counterpart."""
        kind, schema = self._asked.form
        if schema is not None and self._able.structured:
            return {"format": {"type": "json_schema", "schema": _closed(schema)}}
        if kind != "text":
            self._ignored.add("response_format")
        return {}

    def _tools(self) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        offered = [self._tool(tool, f"tools[{index}]") for index, tool in enumerate(self._asked.tools)]
        if not offered:
            # the wire wants a definition of what was called
            called = [{"name": name, "input_schema": {"type": "object"}} for name in self._messages.called]
            return called, {"type": "none"} if called else None
        single = self._rest.get("parallel_tool_calls") is False
        offered, choice = self._chosen(offered)
        if choice["type"] in ("any", "tool") and not self._able.forced_tools:
            self._ignored.add("tool_choice")
            choice = {"type": "auto"}
        if single and choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
        return offered, None if choice == {"type": "auto"} else choice

    def _chosen(self, offered: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the tools that may be called, and Anthropic's `tool_choice`.

        If one tool must be called, the others stay, because the cache of the whole prompt begins with the tools.
        """
        choice = self._rest.get("tool_choice", "auto")
        choices: Mapping[str, str] = _TABLE["choices"]
        if isinstance(choice, str):
            kind = choices.get(choice) or wrong("tool_choice", f"must be one of {', '.join(choices)}")
            return offered, {"type": kind}
        if choice.get("type") in OWN_CHOICES:
            return offered, dict(choice)
        named = chosen_tools(choice)
        chosen = [tool for tool in offered if tool.get("name") in named]
        if not chosen:
            wrong("tool_choice", "must name a tool that is offered")
        allowed = choice.get("allowed_tools")
        if isinstance(allowed, Mapping) and allowed.get("mode") != "required":
            return chosen, {"type": "auto"}
        return (offered, {"type": "tool", "name": named[0]}) if len(chosen) == 1 else (chosen, {"type": "any"})

    def _tool(self, tool: Mapping[str, Any], place: str) -> dict[str, Any]:
        """Return a function as Anthropic's tool; one of Anthropic's own types, such as web search, stays as it is.

        A custom tool is refused: Anthropic cannot hold to its grammar, and gives no free text back.
        """
        if tool.get("type", "function") != "function" or ("function" not in tool and "input_schema" in tool):
            if "custom" in tool:
                raise unsupported("Anthropic only knows custom tools with a JSON schema", f"{place}.type")
            return dict(tool)
        if "function" not in tool:
            wrong(f"{place}.function", "is missing")
        function = tool["function"]
        result: dict[str, Any] = {"name": function["name"]}
        if function.get("description"):
            result["description"] = function["description"]
        schema = function.get("parameters") or {}
        result["input_schema"] = {**schema, "type": "object"} if schema.get("type") != "object" else schema
        if function.get("strict") is True:
            if self._able.structured:
                result["strict"] = True
            else:
                self._ignored.add("tools[].strict")
        known = _FUNCTION | result.keys()
        given_as = (*function.items(), *tool.items())  # such as `cache_control` and `defer_loading`
        return result | {key: value for key, value in given_as if value is not None and key not in known}

    def _think(self, body: dict[str, Any]) -> None:
        level, place = self._asked.effort(BUDGETS)
        able, thinking = self._able, self._able.thinking
        if level is None or "thinking" in body or (level == "none" and thinking in ("none", "budget")):
            return
        if level == "none" and thinking == "adaptive":
            body["thinking"] = {"type": able.least}
            return
        # a call can only be demanded of a model that does not think
        is_forced = (body["tool_choice"] or {}).get("type") in ("any", "tool") and thinking != "always"
        # a short answer has no room for a budget, and a loop of calls goes on as it began
        is_short = thinking == "budget" and not (self._limit > LEAST_BUDGET and self._messages.thinks)
        is_barred = thinking == "none" or is_forced or is_short
        if is_barred or level == "none":
            self._ignored.add(place)
        if is_barred:
            return
        if thinking == "budget":
            budget = max(LEAST_BUDGET, min(BUDGETS[level], self._limit // 2))
            body["thinking"] = {"type": "enabled", "budget_tokens": budget}
            return
        if thinking == "adaptive":
            body["thinking"] = {"type": "adaptive"}
        wanted = LEVELS.index(level) if level in LEVELS else 0
        nearest = min(able.efforts, key=lambda each: abs(LEVELS.index(each) - wanted))
        body[OUTPUT_CONFIG] = {"effort": nearest, **body[OUTPUT_CONFIG]}

    def _sample(self, body: dict[str, Any]) -> None:
        thinks = body.get("thinking", {}).get("type") in ("enabled", "adaptive")
        temperature, top_p = self._rest.get("temperature"), self._rest.get("top_p")
        if temperature is not None:
            if temperature > 1 or (temperature != 1 and (thinks or not self._able.sampling)):
                self._ignored.add("temperature")
            if self._able.sampling and not thinks:
                body["temperature"] = min(temperature, 1)
        if top_p is not None and top_p != 1:
            if self._able.sampling and "temperature" not in body and (not thinks or top_p >= 0.95):
                body["top_p"] = top_p
            else:
                self._ignored.add("top_p")
        if "top_k" in body and (thinks or not self._able.sampling):
            del body["top_k"]
            self._ignored.add("top_k")


def _closed(schema: Any) -> Any:
    """Return a schema whose objects have no other properties: Anthropic takes no open ones."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {key: _closed(value) for key, value in schema.items()}
    if made.get("type") == "object" and "additionalProperties" not in made:
        made["additionalProperties"] = False
    return made
