"""What was worked out or found in a conversation is the same, resumed or not."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.chat.folds import Folds
from proxy.context import Identity, find_in_each
from proxy.state.cache import OnceService
from tests.talk import assistant, user

NONE: tuple[str, ...] = ()
ROLES = ("user", "assistant", "tool")
ADDED = st.lists(st.tuples(st.sampled_from(ROLES), st.booleans()), max_size=12)
"""Messages that come, each with whether a later step gives it another form."""


def said(role: str, text: str) -> Message:
    return Message({"role": role, "content": text})


def texts(before: tuple[str, ...], messages: Sequence[Message]) -> tuple[str, ...]:
    return (*before, *(message.text for message in messages))


@given(st.lists(st.tuples(ADDED, st.integers(0, 40), st.booleans()), max_size=8))
def test_conversations_that_grow_fork_and_are_cut_back_give_what_they_give_from_the_start(
    steps: list[tuple[list[tuple[str, bool]], int, bool]],
) -> None:
    folds, talk, forms = Folds(), list[Message](), dict[int, Message]()
    for number, (added, kept, is_next) in enumerate(steps):
        talk = talk[:kept]
        for role, is_changed in added:
            talk.append(said(role, f"{number} {len(talk)}"))
            if is_changed:
                forms[id(talk[-1])] = talk[-1].with_changes(content=f"short {len(talk)}")
        if is_next:
            folds = folds.begin()
        came = tuple(talk)
        for messages in (came, tuple(forms.get(id(each), each) for each in came), came[1:]):
            for _ in range(2):
                assert folds.of(messages).fold("texts", NONE, texts) == texts((), messages)


def test_requests_at_once_take_nothing_from_each_other() -> None:
    read = 0

    def noting(before: int, messages: Sequence[Message]) -> int:
        nonlocal read
        read += len(messages)
        return before + len(messages)

    folds, talk = Folds(), tuple(said(ROLES[n % 2], str(n)) for n in range(100))
    forms = [talk, *(tuple(said(ROLES[n % 2], f"{step} {n}") for n in range(100)) for step in range(4))]

    def ask(number: int) -> None:
        requests = [(folds.begin(), [(*form, said("user", "more")) for form in forms]) for _ in range(number)]
        for step in range(number + len(forms)):  # one after the other begins; all are at another step of their chains
            for place, (request, longer) in enumerate(requests):
                for each in longer[: max(0, step - place)]:
                    assert request.of(each).fold("count", 0, noting) == 101

    ask(1)
    read = 0
    ask(64)
    assert read <= 64 * len(forms) * 10


def test_forms_and_names_that_are_not_asked_for_any_more_are_forgotten() -> None:
    folds = Folds()
    for n in range(100):
        talk = tuple(said(ROLES[place % 2], f"{n} {place}") for place in range(20))
        folds.begin().of(talk).fold("texts", NONE, texts)
    assert len(folds._known) <= 16
    form = folds.of(talk)
    for n in range(100):
        form.fold(n, NONE, texts)
    assert len(form._beginning) <= 48


class Marks:
    """Finds what is marked with a star, and tells how often it looked."""

    def __init__(self) -> None:
        self.looked: list[str] = []

    def __call__(self, message: Message) -> tuple[str, ...]:
        self.looked.append(message.text)
        return tuple(word for word in message.text.split() if word.startswith("*"))


def talk(length: int, marked: Sequence[int]) -> tuple[Message, ...]:
    texts = [f"{n} {'*' if n in marked else ''}{n}" for n in range(length)]
    return tuple(assistant(text) if n % 2 else user(text) for n, text in enumerate(texts))


PLACES = (0, 5, 30, 31, 64)
WHOLE = talk(80, PLACES)


async def test_a_conversation_that_grows_is_read_once() -> None:
    once, marks, folds = OnceService().bind(Identity("t")), Marks(), Folds()
    for length in range(80):
        found = await find_in_each(folds.begin(), once, "n", marks, WHOLE[:length])
        assert list(found) == [n for n in PLACES if n < length]
    assert len(marks.looked) == len(set(marks.looked)) == 79


@pytest.mark.parametrize("changed", [0, 3, 32, 64])
async def test_a_change_in_the_middle_is_seen_and_nothing_else_is_read_anew(changed: int) -> None:
    once, marks, folds = OnceService().bind(Identity("t")), Marks(), Folds()
    await find_in_each(folds, once, "n", marks, WHOLE)
    marks.looked.clear()
    messages = (*WHOLE[:changed], WHOLE[changed].with_changes(content="*new"), *WHOLE[changed + 1 :])
    found = await find_in_each(folds.begin(), once, "n", marks, messages)
    assert found[changed] == ("*new",)
    assert marks.looked == ["*new"]


async def test_what_left_the_front_moves_the_places_and_tenants_share_nothing() -> None:
    once, folds = OnceService().bind(Identity("t")), Folds()
    await find_in_each(folds, once, "n", Marks(), WHOLE)
    assert list(await find_in_each(folds.begin(), once, "n", Marks(), WHOLE[1:])) == [n - 1 for n in PLACES[1:]]
    service, marks = OnceService(), Marks()
    for tenant, name in (("t", "n"), ("other", "n"), ("t", "another")):
        await find_in_each(Folds(), service.bind(Identity(tenant)), name, marks, WHOLE)
    assert len(marks.looked) == 3 * len(WHOLE)
    assert service.forget("other") > 0
    await find_in_each(Folds(), service.bind(Identity("t")), "n", marks, WHOLE)
    assert len(marks.looked) == 3 * len(WHOLE)


def test_marks_that_move_with_each_request_cost_no_messages_that_stand_far_before_them() -> None:
    def asked(steps: int, marks: int) -> tuple[Message, ...]:
        talk = [said(ROLES[1 + n % 2], str(n)) for n in range(2 * steps)]
        for place in range(len(talk) - 1, -1, -2)[:marks]:
            raw = b'{"role":"tool","content":[{"type":"text","text":"%d","cache_control":{}}]}' % place
            talk[place] = Message({"role": "tool", "content": str(place)}, raw)
        return tuple(known.setdefault(each.raw, each) for each in talk)

    known: dict[bytes, Message] = {}
    for marks, most in ((0, 4), (1, 6), (2, 8)):
        folds, read = Folds(), list[int]()

        def noting(before: int, messages: Sequence[Message], read: list[int] = read) -> int:
            read[-1] += len(messages)
            return before + len(messages)

        for steps in range(10, 20):
            read.append(0)
            folds = folds.begin()
            assert folds.of(asked(steps, marks)).fold("count", 0, noting) == 2 * steps
        assert read[0] == 20
        assert max(read[1:]) <= most


def test_a_form_goes_on_only_where_an_answer_follows_what_it_settled() -> None:
    talk = tuple(said(ROLES[place % 2], str(place)) for place in range(20))
    for after, count in (((), 0), ((said("user", "no"),), 0), ((said("assistant", "yes"),), 19), (talk[19:], 19)):
        folds = Folds()
        folds.of(talk).settle("read", 1)
        assert folds.begin().of((*talk[:19], *after)).resume("read", 0) == (count, int(count > 0)), after


def test_an_answer_far_before_many_results_is_not_taken_for_none() -> None:
    talk = (said("user", "all"), said("assistant", "calls"), *(said("tool", str(place)) for place in range(300)))
    folds = Folds()
    folds.of(talk).settle("read", 1)
    assert folds.begin().of((*talk, said("assistant", "done"), said("user", "more"))).resume("read", 0) == (0, 0)
