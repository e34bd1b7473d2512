"""What was worked out of a conversation is the same, resumed or not."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.chat.folds import Folds

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
