"""Have the provider's prompt cache keep what the next request will send again."""

from dataclasses import replace
from hashlib import sha256
from typing import ClassVar, Literal

from proxy.chat import CacheMarks, ChatRequest
from proxy.chat.blocks import injected
from proxy.chat.cache_marks import MOST, find_marks, markable
from proxy.chat.provenance import of_client
from proxy.context import CacheRules, Context
from proxy.economics import may_be_cached
from proxy.policy import Decision, Keep, Policy, Rewrite, Stage


class MarkCache(Policy):
    """Place `cache_control` for models that cache only what is marked, and `prompt_cache_key` for OpenAI.

    Claude keeps a prefix only where it is marked, and asks a quarter more for writing it and a tenth for reading it.
    Marked are the end of the tools and the system prompt, the end of the last request, where the cache is read, and the
    end of this one, where it is written. A client's own marks win; with them there are four at most. Put it last: later
    steps would move the marks. Models with an automatic cache are left alone, but that OpenAI's get a key per
    conversation, which sends its requests to the same machines.
    """

    stage: ClassVar = Stage.MARKS

    ttl: Literal["5m", "1h"] = "5m"
    """How long an unused prefix stays. Writing costs 1.25 times the input price for five minutes, twice for an hour."""

    conversation: bool = True
    """Whether the conversation is marked too. Without it only tools and system prompt are: for requests that are asked
    once and share nothing else."""

    def marked_cache(self, rules: CacheRules) -> CacheRules:
        """Five minutes as the model's rules say; an hour is twice the input price to write."""
        return rules if self.ttl == "5m" else replace(rules, write=2.0, ttl=3600.0)

    async def apply(self, request: ChatRequest, ctx: Context) -> Decision:
        """Mark the request, or name its conversation, where the model's cache wants that."""
        rules = ctx.model.cache
        if rules.keyed and request.rest.get("prompt_cache_key") is None and ctx.identity.session:
            key = sha256(f"{ctx.identity.tenant}\0{ctx.identity.session}".encode()).hexdigest()[:32]
            return Rewrite(request.with_field("prompt_cache_key", key), "a key for this conversation's cache")
        if not rules.marked:
            return Keep("the model's cache needs no marks")
        total = (await ctx.tokens.count(request)).total
        if not may_be_cached(rules, total):
            return Keep(f"{total} tokens are too few to be cached")
        own = find_marks(request)
        if any(mark.get("ttl", "5m") != self.ttl for mark in own):
            return Keep("the client's own marks have another ttl")  # the longer one would have to come first
        marks = self._place(request, ctx, MOST - len(own))
        if request.cache_marks == marks or not (marks.messages or marks.tools):
            return Keep("nothing more to mark")
        count = len(marks.messages) + marks.tools
        return Rewrite(request.with_cache_marks(marks), f"{count} marks", facts={"marks": count})

    def _place(self, request: ChatRequest, ctx: Context, free: int) -> CacheMarks:
        """The marks: the places that save most come first, as far as there are any free."""
        messages = request.messages
        last = len(messages) - 1
        head = max((place for place, each in enumerate(messages) if each.is_system), default=None)
        wanted: list[int | None] = [head]
        if self.conversation:
            answered = max((place for place, each in enumerate(messages) if each.role == "assistant"), default=0)
            blocks = injected(messages, of_client(request, ctx.incoming))
            added = next((place for place in blocks if place > answered), None)
            wanted = [last, answered - 1, head, None if added is None else added - 1]
        places: list[int] = []
        for place in wanted:
            while place is not None and place >= 0 and not markable(messages[place]):
                place -= 1
            if place is not None and place >= 0 and place not in places and len(places) < free:
                places.append(place)
        tools = bool(request.tools) and len(places) < free
        return CacheMarks(tuple(sorted(places)), tools, self.ttl)
