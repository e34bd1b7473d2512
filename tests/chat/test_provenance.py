from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.chat import ChatRequest, Message, provenance
from proxy.chat.folds import Folds
from proxy.chat.provenance import identities, of_client, standing
from proxy.testing import chat


def request(messages: Sequence[Message]) -> ChatRequest:
    return ChatRequest("m", tuple(messages))


def test_a_changed_message_knows_what_it_was_made_of() -> None:
    first = Message({"role": "user", "content": "hello", "name": "ann"})
    second = first.with_changes(content="hello [note]")
    third = second.without("name")
    assert (third.made_of, second.made_of, first.made_of) == (second, first, None)


def test_the_clients_messages_are_found_in_any_form() -> None:
    incoming = chat("s u1 a1 u2").messages
    marked = incoming[1].with_changes(content="u1 [note]").with_changes(content="u1 [note] [another]")
    added = Message({"role": "user", "content": "u1"})
    assert of_client(request([incoming[0], added, marked, incoming[3]]), request(incoming)) == {0: 0, 2: 1, 3: 3}


def test_what_was_made_of_a_message_that_the_client_did_not_send_is_not_the_clients() -> None:
    incoming = chat("u1").messages
    assert of_client(request([chat("u1").messages[0].with_changes(content="x")]), request(incoming)) == {}


def test_a_message_that_incoming_has_in_a_later_form_is_found_by_that() -> None:
    before = chat("u1").messages[0]
    incoming = before.without("task")
    assert of_client(request([incoming.with_changes(content="u1 [note]")]), request([incoming])) == {0: 0}


def test_a_users_message_stands_with_marks_in_it_and_not_in_a_short_form() -> None:
    incoming = chat("u1 u2 u3 a1").messages
    marked = incoming[0].with_changes(content="u1 [note]")
    short = incoming[1].with_changes(content='u\n[shortened: 1 of 2 characters; recall("h") has the whole]')
    both = short.with_changes(content=short.text + " [note]")
    same = standing(request([marked, short, incoming[2], incoming[3]]), request(incoming))
    assert same.places == {0, 2, 3}
    assert standing(request([both]), request(incoming)).places == frozenset()


def test_where_no_step_has_changed_any_each_is_its_own() -> None:
    incoming = chat("s u1 a1 u2").messages
    for same in (incoming, [*incoming]):
        assert of_client(request(same), request(incoming)) == {0: 0, 1: 1, 2: 2, 3: 3}
    assert list(of_client(request([*incoming[2:], incoming[0]]), request(incoming)).items()) == [(0, 2), (1, 3), (2, 0)]


def test_places_are_those_in_the_request_that_is_asked_about() -> None:
    """Two that begin alike, such as one with what the client did not see, do not share what was found."""
    came = chat("s u1 a1 u2 a2 u3 a3 u4 a4 u5")
    *earlier, last = came.messages
    whole = came.with_messages([*earlier, *chat("a9 u9").messages, last])
    assert of_client(whole, whole) == {place: place for place in range(12)}
    assert of_client(whole, came) == {**{place: place for place in range(9)}, 11: 9}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 60)), max_size=10))
def test_places_are_those_of_the_request_however_it_has_grown(steps: list[tuple[int, int]]) -> None:
    folds, talk = Folds(), list[Message]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provenance, "_RECENT", 5)
        for added, kept in steps:
            talk = talk[:kept] + [
                Message({"role": ("user", "assistant")[n % 2], "content": str(n)}) for n in range(added)
            ]
            made = ChatRequest("m", tuple(talk), folds=folds.begin())
            places = identities(made)
            assert {id(each): places.get(id(each)) for each in talk} == {id(each): at for at, each in enumerate(talk)}
            assert id(Message()) not in places
