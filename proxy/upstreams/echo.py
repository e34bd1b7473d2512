"""An upstream that needs nothing: it answers with a report of what reached it."""

from collections.abc import Iterable

from proxy.chat import ChatRequest
from proxy.chat.errors import BadRequest, NotFound
from proxy.context import TokenCount
from proxy.text import counted
from proxy.upstreams.base import Abilities, Call, Reply, Upstream
from proxy.upstreams.completion import Completion, Deltas, usage
from proxy.upstreams.request_fields import check_fields


def build(upstreams: Iterable[str], settings: object) -> dict[str, Upstream]:
    """Return the upstreams of this kind by name."""
    return {name: Echo(name) for name in upstreams}


class Echo(Upstream):
    """An upstream that reports the messages, tokens and tools of each request, streaming too."""

    provider = "penstock.echo"
    abilities = Abilities(limits_answers=False)

    def __init__(self, name: str) -> None:
        self.name = name

    async def send(self, call: Call) -> Reply:
        """Answer a chat request. Raise `NotFound` for every other path: there is nothing to echo."""
        if call.request is None or call.tokens is None:
            raise NotFound(f"the echo upstream only answers /v1/chat/completions, not /v1{call.path}")
        if not call.request.messages:
            raise BadRequest("messages is empty; send at least one", param="messages", code="empty_array")
        check_fields(call.request)
        count = await call.tokens.count(call.request)
        text = _report(call.request, count)
        completion = Completion(call, {})
        completion.usage = usage(count.total, len(text.split()))
        return await completion.reply(_deltas(text))


def _report(request: ChatRequest, count: TokenCount) -> str:
    roles: dict[str, int] = {}
    for message in request.messages:
        roles[message.role] = roles.get(message.role, 0) + 1
    about = "" if count.exact else "about "
    lines = [
        f"{counted(len(request.messages), 'message')} ({', '.join(f'{n} {role}' for role, n in roles.items())}), "
        f"{counted(len(request.tools), 'tool')}",
        f"{about}{count.total} tokens: {count.system} system, {count.tools} tools, {count.messages} conversation",
    ]
    if request.tools:
        lines.append("tools: " + ", ".join(tool.name for tool in request.tools))
    return "\n".join(lines)


async def _deltas(text: str) -> Deltas:
    for line in text.splitlines(keepends=True):
        yield {"content": line}
    yield {"finish_reason": "stop"}
