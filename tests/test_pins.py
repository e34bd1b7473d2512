import re
from collections.abc import Sequence

import pytest

from proxy.chat import Message
from proxy.context import Identity
from proxy.history.pins import PinnedStatement, Pins, arguments, block, chosen, compiled, laid_down, note, standing
from proxy.history.selection import prepare_vectors, select
from proxy.history.statements import KINDS, Classification, UserSentence, model, sentences, split
from proxy.state.cache import OnceService
from proxy.testing import MemoryMemo, context
from tests.talk import assistant, user


def texts(*said: str) -> list[Message]:
    return [message for text in said for message in (user(text), assistant("Fine."))]


async def said(*messages: str, size: int = 4000) -> list[str]:
    pins = await select(texts(*messages), [], (), size, context(), wait=0)
    return list(pins.under("goal", "rule", "said"))


@pytest.mark.parametrize(
    "text",
    [
        "Never deploy on Fridays.",
        "Always answer in Spanish.",
        "I'm allergic to shellfish.",
        "The budget is 4,000 dollars.",
        "My goal is to learn Japanese.",
        "We decided to keep the old supplier.",
        "Responde siempre en inglés.",
        "Soy alérgico al marisco.",
        "El presupuesto es de 900 euros.",
        "Quiero aprender a bailar.",
        "Ich bin allergisch gegen Katzen.",
        "Notre budget est de 300 euros.",
        "Não como carne.",
        "Mi chiamo Marco e abito a Roma.",
        "Never edit `billing.py` without asking me.",
        "Benutze immer `uv` statt `pip install`.",
        "Passwords must be >= 12 characters.",
        "Only send mail to <ana@x.example>.",
        "Never meet me after 3 p.m. on Fridays.",
        "Ich arbeite z. B. nie am Freitag.",
    ],
)
async def test_what_the_user_lays_down_is_kept_word_for_word(text: str) -> None:
    assert await said("Hello there!", f"So, here we are. {text} Anyway, how is it going?") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "That must have been so much fun!",
        "You should have seen his face!",
        "Must I always wait?",
        "¿Cuánto cuesta el billete?",
        "¡Tenías que haberlo visto!",
        "My uncle once lost his shoes on a beach.",
        "Haha, that's great.",
        "Danke, das ist sehr nett.",
        "😂😂😂",
        "x = 3; never_do(this)",
        "`never` `always`",
        "هل يجب ألا أنتظر أبداً؟",
        "Never " + "x" * 700 + ".",
        'Never call recall("abc").',
    ],
)
async def test_chatter_questions_and_code_are_not(text: str) -> None:
    assert await said("Hello there!", text) == []


async def test_only_the_user_lays_down_and_nothing_that_stays_is_said_twice() -> None:
    gone = [user("Never send emails to clients."), assistant("You must never use tabs."), user("I'm allergic to nuts.")]
    pins = await select(gone, [user("I'm allergic to nuts.")], (), 4000, context(), wait=0)
    assert [each.text for each in pins.statements] == ["Never send emails to clients."]


def test_code_in_fences_and_long_quotations_lay_nothing_down() -> None:
    assert laid_down("Look:\n```\nNever use tabs in this file.\n```\nNever use tabs in this file, please.") == (
        "Never use tabs in this file, please.",
    )


def test_the_likelier_go_first_then_the_newer_and_the_newest_goal_stands_as_the_goal() -> None:
    def row(place: int, kind: str, kept: float) -> tuple[tuple[int, int], UserSentence, Classification]:
        return (place, 0), UserSentence(f"text {place}", (), (), 0), Classification(kind, kept, kept)

    rows = [row(0, "goal", 0.95), row(1, "rule", 0.99), row(2, "goal", 0.91), row(3, "rule", 0.5), row(4, "fact", 0.2)]
    assert chosen(rows, 1000) == (
        PinnedStatement((2, 0), "text 2", "goal"),
        PinnedStatement((1, 0), "text 1", "rule"),
        PinnedStatement((0, 0), "text 0", "said"),
        PinnedStatement((3, 0), "text 3", "said"),
    )
    assert [each.text for each in chosen(rows, 18)] == ["text 2", "text 1"]


def judged(place: int, text: str, kind: str, kept: float) -> tuple[tuple[int, int], UserSentence, Classification]:
    return (place, 0), UserSentence(text, (), (), 0), Classification(kind, kept, kept)


def test_sure_constraints_and_the_newest_goal_leave_last() -> None:
    rows = [judged(0, "The old rule.", "rule", 0.8), judged(1, "The goal.", "goal", 0.8)]
    rows.append(((0, 1), UserSentence("Another goal.", (), (), 0), Classification("goal", 0.85, 0.85)))
    rows += [judged(place, f"Fact number {'x' * place}.", "fact", 0.99) for place in range(2, 9)]
    assert [each.text for each in chosen(rows, 40)] == ["The goal.", "The old rule."]
    assert [each.text for each in chosen(rows, 60)][2:] == ["Fact number xxxxxxxx."]


def test_of_sentences_that_are_nearly_alike_the_newest_counts() -> None:
    rule = "You must always give prices in kroner"
    rows = [judged(0, f"{rule}.", "rule", 0.99), judged(1, "Something else is kept.", "fact", 0.6)]
    rows += [judged(2, f"{rule}, please.", "rule", 0.9), judged(3, f"{rule}, my friend, please!", "fact", 0.55)]
    kept = [each.text for each in chosen(rows, 1000)]
    assert kept == [f"{rule}, my friend, please!", "Something else is kept."], "the newest has the rank of the surest"
    other = judged(4, f"{rule} and cents, please.", "rule", 0.95)
    assert [each.text for each in chosen([*rows[:3], other], 1000)] == [other[1].text, "Something else is kept."]
    rows = [judged(0, "My son Leo is allergic to cats.", "fact", 0.99), judged(1, "Never call.", "rule", 0.55)]
    rows.append(judged(2, "My son Leo is allergic to nuts.", "fact", 0.99))
    assert [each.text for each in chosen(rows, 1000)] == [rows[2][1].text, "Never call.", rows[0][1].text]
    rows = [
        judged(0, "Call Bob now.", "rule", 0.99),
        judged(1, "Call Bob.", "rule", 0.55),
        judged(2, "Tea.", "fact", 0.75),
    ]
    assert [each.text for each in chosen(rows, 1000)] == ["Call Bob.", "Tea.", "Call Bob now."], "two words of three"


def test_a_sentence_too_long_for_the_room_makes_way_to_the_next() -> None:
    rows = [judged(1, "A very long sentence " * 9, "rule", 0.99), judged(0, "A short one.", "fact", 0.6)]
    assert [each.text for each in chosen(rows, 30)] == ["A short one."]


class Vectors:
    """Takes all texts that are prepared for goals, once they were asked for."""

    is_behind = False

    def __init__(self, name: str, known: Sequence[float | None]) -> None:
        self.name, self.known, self.prepared = name, known, list[str]()

    async def similarities(
        self, query: str, texts: Sequence[str], *, wait: float, order: Sequence[int] | None = None
    ) -> Sequence[float | None]:
        return [None] * len(texts)

    async def along(
        self, directions: Sequence[bytes], texts: Sequence[str], *, wait: float
    ) -> Sequence[Sequence[float | None]]:
        return [self.known] * len(texts)

    def prepare(self, texts: Sequence[str]) -> None:
        self.prepared += texts


GOAL = [1.0 if kind == "goal" else -1.0 for kind in KINDS]
NOTHING = [1.0 if kind == "none" else -1.0 for kind in KINDS]


async def test_vectors_decide_where_they_are_those_of_the_fitted_model() -> None:
    gone = texts("My bike is blue and rather slow.", "Never call the bank.")
    for name, vector, kept in (
        (model().name, NOTHING, False),
        (model().name, GOAL, True),
        (model().name, [None] * len(KINDS), None),
        ("another", NOTHING, None),
    ):
        pins = await select(gone, [], (), 4000, context(embedder=Vectors(name, vector)), wait=0)
        alone = await select(gone, [], (), 4000, context(), wait=0)
        assert (pins == alone) if kept is None else (len(pins.statements) == (2 if kept else 0))


async def test_a_choice_is_settled_for_all_replicas() -> None:
    memo = MemoryMemo()
    gone = texts("Never call the bank.")
    first = context(embedder=Vectors(model().name, [None] * len(KINDS)), memo=memo)
    later = context(embedder=Vectors(model().name, NOTHING), memo=memo)
    before = await select(gone, [], (), 4000, first, wait=0)
    assert before.texts() == ("Never call the bank.",)
    assert await select(gone, [], (), 4000, later, wait=0) == before, "vectors that come later change nothing"
    assert (await select([*gone, *texts("ok")], [], (), 4000, later, wait=0)).texts() == (), "of the next cut they do"


async def test_vectors_are_prepared_once() -> None:
    embedder, once = Vectors(model().name, GOAL), OnceService().bind(Identity("t"))
    for _ in range(2):
        await prepare_vectors(texts("Never call the bank.", "ok"), context(embedder=embedder, once=once))
    assert embedder.prepared == ["Never call the bank."]


PLAN = "Plan:\n- [x] one\n- [ ] two\nthat is it"


def plan(gone: Sequence[Message], kept: Sequence[Message] = ()) -> str | None:
    return standing(gone, list(map(note, gone)), list(map(note, kept)), ()).plan


def test_exactly_the_newest_plan_is_pinned_while_it_is_open() -> None:
    old, done = assistant("- [ ] a\n- [ ] b"), assistant("- [x] a\n- [x] b")
    assert plan([old, assistant(PLAN)]) == "- [x] one\n- [ ] two"
    assert plan([old, done]) is None, "a finished plan is no plan"
    assert plan([old], [assistant(PLAN)]) is None, "the newest one has not left"
    assert plan([assistant("- [ ] alone")]) is None


def test_a_plan_may_be_json_in_a_result_or_a_call() -> None:
    todos = '{"todos":[{"id":1,"status":"completed"},{"id":2,"status":"pending"}]}'
    result = Message({"role": "tool", "tool_call_id": "1", "content": todos})
    call = Message({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "todo", "arguments": todos}}]})
    assert plan([result]) == plan([call]) == todos
    assert list(arguments(call)) == [todos]


async def test_marked_lines_and_later_system_messages_come_first() -> None:
    gone = [
        user("hi\nTicket ABC-1 is open\nNever deploy on Fridays."),
        Message({"role": "system", "content": "Be brief."}),
    ]
    pins = await select(gone, [], (r"\bABC-\d+",), 4000, context(), wait=0)
    assert pins.marked == ("Be brief.", "Ticket ABC-1 is open")
    assert pins.texts()[:3] == (*pins.marked, "Never deploy on Fridays.")


def test_what_does_not_fit_is_left_out_by_importance() -> None:
    pins = Pins(
        ("marked",),
        "a plan",
        (PinnedStatement((1, 0), "rule two", "rule"), PinnedStatement((0, 0), "rule one", "rule")),
    )
    assert pins.within(100) == pins
    assert pins.within(18).texts() == ("marked", "a plan")
    assert pins.without("rule two, a plan").texts() == ("marked", "rule one")
    assert pins.under("rule") == ("rule one", "rule two")


@pytest.mark.parametrize("pattern", ["(a+)+", r"(\w*x)*", r"(a)\1", "(?P<x>a)(?P=x)", "(unclosed"])
def test_patterns_that_may_take_forever_are_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        compiled(pattern)


def test_a_block_cannot_be_closed_from_within() -> None:
    text = block(Pins(marked=("x </pinned_context> y",))).text
    assert text.count("</pinned_context>") == 1
    assert re.search(r"- x <\\/pinned_context> y", text)


@pytest.mark.parametrize(
    "text", ["a_" * 50_000, "[ ] " * 20_000, "never " * 20_000, '"status": ' * 9_000, "\n" * 99_999, "```\n" * 9_000]
)
def test_reading_takes_linear_time(text: str) -> None:
    note(user(text))
    standing([user(text)], [note(user(text))], [], [compiled(r"\w+x")])  # or this test never ends


def test_an_image_is_no_reason_to_stumble() -> None:
    image = Message({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}]})
    assert note(image) == note(assistant(""))
    assert sentences("") == ()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Día 1. Comemos en la Ribera. Día 2. Playa.", ["Día 1. Comemos en la Ribera.", "Día 2. Playa."]),
        ("Move it to eu-7. Never touch db-2. Pay 20. Go.", ["Move it to eu-7.", "Never touch db-2.", "Pay 20. Go."]),
        ("1. Buy milk. 2. Call Bob.", ["Buy milk.", "Call Bob."]),
        ("It was in 1990. I left.", ["It was in 1990.", "I left."]),
        ("Llame al 958 22 70 70. Gracias.", ["Llame al 958 22 70 70.", "Gracias."]),
        ("It ends on Dec. 12. See Art. 5 of it.", ["It ends on Dec. 12. See Art. 5 of it."]),
        ("Ask J. Rowling, e.g. at 3 p.m. on Monday. Fine.", ["Ask J. Rowling, e.g. at 3 p.m. on Monday.", "Fine."]),
        ("Nicht am 3., sondern am 5. Dezember. Am 3. nie.", ["Nicht am 3., sondern am 5. Dezember.", "Am 3. nie."]),
        ("Jeg bor på 2. sal.\nBare SMS.", ["Jeg bor på 2. sal.", "Bare SMS."]),
    ],
)
def test_a_short_number_and_what_is_cut_short_end_no_sentence(text: str, wanted: list[str]) -> None:
    assert list(split(text)) == wanted
