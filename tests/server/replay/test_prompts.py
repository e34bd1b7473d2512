"""What a provider's cache reads of a prompt, and where a chain breaks a prefix."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import CacheMarks, ChatRequest, Message
from proxy.context import CacheRules
from proxy.server.replay.score import OWN, Prompt, PromptHistory, prompt_of, rules_of
from proxy.testing import chat, context, tool

RULES = CacheRules(read=0.1, minimum=0, ttl=300)


async def prompts(*requests: ChatRequest | str, at: float = 0.0) -> list[Prompt]:
    tokens = context().tokens
    return [await prompt_of(chat(each) if isinstance(each, str) else each, tokens, at) for each in requests]


def read(conversation: PromptHistory, prompt: Prompt, rules: CacheRules) -> int:
    return conversation.send(prompt, rules)[OWN].cached


async def test_a_prompt_that_goes_on_reads_the_one_before_it() -> None:
    first, second = await prompts("s u1", "s u1 a1 u2")
    talk = PromptHistory()
    assert read(talk, first, RULES) == 0
    assert read(talk, second, RULES) == first.ends[False][-1]
    priced = talk.send(second, RULES)[OWN]
    tokens = second.ends[False][-1]
    assert (priced.cached, priced.cost) == (tokens, 0.1 * tokens)


async def test_only_whole_steps_from_the_minimum_on_are_read() -> None:
    long = "word " * 400
    requests = [chat("s u1").with_messages([Message({"role": "user", "content": long})] * count) for count in (3, 4)]
    first, second = await prompts(*requests)
    talk = PromptHistory()
    rules = CacheRules(read=0.1, minimum=1024, ttl=300)
    read(talk, first, rules)
    cached = read(talk, second, rules)
    assert cached % 128 == 0
    assert first.ends[False][-1] - 128 < cached <= first.ends[False][-1]
    assert read(PromptHistory(), second, rules) == 0
    short = PromptHistory()
    short.send((await prompts("s u1"))[0], rules)
    assert short.send((await prompts("s u1 a1"))[0], rules)[OWN].cached == 0


async def test_nothing_is_read_after_a_pause() -> None:
    talk, (first,), (later,) = PromptHistory(), await prompts("s u1"), await prompts("s u1 a1 u2", at=301)
    talk.send(first, RULES)
    assert talk.send(later, RULES)[OWN].cached == 0


async def test_where_only_marks_are_cached_the_prefix_ends_at_one() -> None:
    marked = CacheRules(read=0.1, ttl=300, marked=True)
    request = chat("s u1 a1 u2", tools=[tool()]).with_cache_marks(CacheMarks((0,), tools=True))
    first, second = await prompts(request, chat("s u1 a1 u2 a2 u3", tools=[tool()]))
    talk = PromptHistory()
    talk.send(first, marked)
    assert talk.send(second, marked)[OWN].cached == second.ends[False][2]
    assert rules_of(marked, chat("s u1")) == CacheRules()
    assert rules_of(marked, request) is marked


async def test_marks_that_a_client_moves_break_nothing() -> None:
    def said(text: str, **mark: object) -> Message:
        return Message({"role": "user", "content": [{"type": "text", "text": text, **mark}]})

    control = {"cache_control": {"type": "ephemeral"}}
    talks = [said("one", **control)], [said("one"), said("two", **control)]
    before, after = await prompts(*map(chat("").with_messages, talks))
    assert before.shared(after) == len(before.text)
    assert (before.marks, after.marks) == ([1], [2])


@given(st.lists(st.text('abé"\\', max_size=6), max_size=6), st.lists(st.text('abé"\\', max_size=6), max_size=6))
async def test_the_first_byte_that_differs_is_found(before: Sequence[str], after: Sequence[str]) -> None:
    old, new = [
        (await prompts(chat("").with_messages([Message({"role": "user", "content": text}) for text in texts])))[0]
        for texts in (before, after)
    ]
    same = next(
        (place for place, pair in enumerate(zip(old.text, new.text, strict=False)) if pair[0] != pair[1]),
        min(len(old.text), len(new.text)),
    )
    assert old.shared(new) == same
