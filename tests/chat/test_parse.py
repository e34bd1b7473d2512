"""Bodies: bytes that are no JSON object, or say a thing twice, are a 400; what is not needed is not parsed."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import parse
from proxy.chat.errors import BadRequest
from proxy.chat.parse import Body, EarlierLists, ParsedList
from tests.refused_bodies import HI, refusal

thorough = settings(max_examples=60, deadline=None)


def with_value(value: bytes) -> bytes:
    return b'{"model":"m","messages":' + HI + b',"x":' + value + b"}"


# --- fields that nobody reads, and half a surrogate pair ---------------------------------------------------------------


def test_a_field_that_nobody_reads_stays_bytes() -> None:
    request = Body(with_value(b"1e999")).parse()
    assert request.encode() == with_value(b"1e999")
    assert request.with_field("y", 2).without("y").rest.raw("x") == b"1e999"


HALF = rb'{"model":"m","messages":[{"role":"user","content":"hi"},{"role":"tool","content":"\ud604\ud99c x"}],"x":"\udc00"}'


def test_half_a_surrogate_pair_is_read_as_the_replacement_character_and_sent_on_as_valid_text() -> None:
    body = Body(HALF)
    request = body.parse()

    assert body.raw == HALF
    assert body.encoded({"model": "n"}) == HALF.replace(b'"m"', b'"n"')
    assert request.messages[1].text == "\ud604\ufffd x"
    assert request.messages[0].raw == b'{"role":"user","content":"hi"}'
    assert request.encode() == HALF.replace(rb"\ud99c", rb"\ufffd").replace(rb"\udc00", rb"\ufffd")
    json.loads(request.encode()).values()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (rb"\ud83d\ude00", "\U0001f600"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud83d \uDC00", "\\ud83d \ufffd"),
        (rb"\\\ud83d", "\\\ufffd"),
    ],
    ids=["a pair", "the wrong way round", "a half before a pair", "an escaped backslash", "a half behind one"],
)
def test_only_half_a_pair_is_replaced(text: bytes, read: str) -> None:
    body = Body(with_value(b'"' + text + rb" \ud800" + b'"'))
    assert body.get("x") == read + " \ufffd"


# --- how much a body may hold -----------------------------------------------------------------------------------------


DENSE: dict[str, Callable[[int], bytes]] = {
    "keys": lambda count: b"{" + b",".join(b'"k%d":1' % n for n in range(count)) + b"}",
    "lists": lambda count: b"[" + b",".join([b"[]"] * count) + b"]",
    "numbers": lambda count: b"[" + b",".join([b"1"] * count) + b"]",
}


@pytest.mark.parametrize(
    ("kind", "most"), [("keys", parse.MOST_KEYS), ("lists", parse.MOST_VALUES // 2), ("numbers", parse.MOST_VALUES)]
)
def test_a_body_that_holds_too_much_is_refused_unparsed(kind: str, most: int) -> None:
    told = parse.MOST_KEYS if kind == "keys" else parse.MOST_VALUES
    Body(with_value(DENSE[kind](most - 20)))
    with pytest.raises(BadRequest, match=f"more than {told:,} ") as caught:
        Body(with_value(DENSE[kind](most + 20)))
    assert (caught.value.status, caught.value.code) == (413, "too_many_values")


@pytest.mark.parametrize(
    "piece", [b"a,b:[{", b'\\"', b"\\\\", b'\\\\\\",'], ids=["signs", "quotes", "backslashes", "both"]
)
def test_what_stands_in_a_text_counts_for_nothing(piece: bytes) -> None:
    text = b'"' + piece * (1_300_000 // len(piece)) + b'"'
    for shift in range(3):  # pieces of the scan begin at other places
        Body(b" " * shift + with_value(text + b"," + b'"y":' + DENSE["lists"](1_000)))
        with pytest.raises(BadRequest, match="more than"):
            Body(b" " * shift + with_value(text + b"," + b'"y":' + DENSE["lists"](parse.MOST_VALUES)))


@pytest.mark.parametrize("levels", [parse.MOST_DEPTH - 10, parse.MOST_DEPTH + 1])
def test_what_is_read_is_nested_at_most_so_deeply(levels: int) -> None:
    value = b'{"a":' * levels + b"1" + b"}" * levels
    body = Body(with_value(value))

    assert body.encoded({}) == with_value(value)
    if levels < parse.MOST_DEPTH:
        assert body.get("x")
    else:
        with pytest.raises(BadRequest, match="nested more than 128 levels"):
            body.get("x")


# --- bytes that are no JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00", id="a NUL byte"),
        pytest.param(b"\xef\xbb\xbf" + with_value(b"1"), id="a byte order mark"),
        pytest.param("\ufeff{}".encode("utf-16-le"), id="UTF-16"),
        pytest.param(with_value(b"1")[:-1], id="the last brace is missing"),
        pytest.param(with_value(b"1") + b" {}", id="a second object behind"),
        pytest.param(b'{"model":"m",}', id="a trailing comma"),
        pytest.param(b'{"\xff":1}', id="a key that is not UTF-8"),
        pytest.param(b'{"\\q":1}', id="an unknown escape in a key"),
        pytest.param(b'{"x":' * 100_000, id="100,000 open braces"),
        pytest.param(with_value(b"[" * 100_000 + b"]" * 100_000), id="100,000 brackets, closed"),
        pytest.param(b'{"model":"m","messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="100,000 in messages"),
        pytest.param(with_value(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), id="100,000 braces, closed"),
        pytest.param(with_value(b"NaN"), id="NaN"),
        pytest.param(with_value(b"01"), id="a leading zero"),
        pytest.param(with_value(b'"\x00"'), id="a NUL byte in a string"),
        pytest.param(with_value(b'"\\x41"'), id="an unknown escape"),
    ],
)
def test_bytes_that_are_no_json_are_refused(raw: bytes) -> None:
    error = refusal(raw)
    assert error.code == "invalid_json"
    assert "not valid JSON" in error.message


@pytest.mark.parametrize(
    "raw",
    [b"[]", b'["model"]', b'"model"', b"1", b"null", b"true", HI],
    ids=["an empty list", "a list", "a string", "a number", "null", "a boolean", "only the messages"],
)
def test_json_that_is_no_object_is_refused(raw: bytes) -> None:
    error = refusal(raw)
    assert error.code == "invalid_json"
    assert "must be an object" in error.message


@pytest.mark.parametrize(
    ("value", "why"),
    [
        pytest.param(b'"\xff\xfe"', "UTF-8", id="invalid UTF-8"),
        pytest.param(b'"\xed\xa0\x80"', "UTF-8", id="a surrogate in UTF-8"),
        pytest.param(b'"\xc0\x80"', "UTF-8", id="an overlong NUL"),
        pytest.param(b"1" * 5000, "infinity", id="an integer of 5000 digits"),
        pytest.param(b"1e999", "infinity", id="a number beyond all numbers"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_by_its_field(value: bytes, why: str) -> None:
    with pytest.raises(BadRequest) as caught:
        Body(with_value(value)).parse().rest["x"]
    error = caught.value
    assert (error.code, error.param) == ("invalid_json", "x")
    assert error.message.startswith("x is not valid JSON: ")
    assert why in error.message


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        pytest.param(
            b'{"model":"m","messages":[{"role":"user"},{"role":"user","content":"\xff"}]}',
            "messages[1]",
            id="a message",
        ),
        pytest.param(b'{"model":"m","messages":' + HI + b',"tools":[{"name":"\xff"}]}', "tools[0]", id="a tool"),
        pytest.param(b'{"model":"\xff","messages":' + HI + b"}", "model", id="the model"),
    ],
)
def test_invalid_utf8_is_named_by_its_place(raw: bytes, param: str) -> None:
    error = refusal(raw)
    assert (error.code, error.param) == ("invalid_json", param)


@given(st.binary(max_size=60))
@thorough
def test_arbitrary_bytes_are_refused_or_read(raw: bytes) -> None:
    try:
        Body(raw).parse()
    except BadRequest as error:
        assert error.status == 400


@given(st.integers(0, 200), st.binary(max_size=3))
@thorough
def test_a_body_that_is_cut_off_or_damaged_is_refused_or_read(place: int, damage: bytes) -> None:
    whole = b'{"model": "m", "messages": [{"role": "user", "content": "caf\\u00e9 \xc3\xa9"}], "seed": 1.5e3}'
    place = min(place, len(whole))
    for raw in (whole[:place], whole[:place] + damage + whole[place + len(damage) :]):
        try:
            Body(raw).parse()
        except BadRequest as error:
            assert error.code


# --- fields that come twice -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b'{"model":"a","messages":' + HI + b',"model":"b"}', id="two models"),
        pytest.param(b'{"model":"a","model":"a"}', id="side by side, the same value"),
        pytest.param(b'{"a":12,"a":1}', id="the second value is the beginning of the first"),
        pytest.param(b'{"a":1,"a":12}', id="the first value is the beginning of the second"),
        pytest.param(b'{"a":1,"b":2,"a":1}', id="the same value, another field between"),
        pytest.param(b'{"model":"a","\\u006dodel":"b"}', id="the second one spelled with an escape"),
        pytest.param(b'{"\\u006dodel":"a","model":"b"}', id="the first one spelled with an escape"),
        pytest.param(b'{"a\\/b":1,"a/b":2}', id="an escaped slash"),
        pytest.param(b'{"caf\\u00e9":1,"caf\xc3\xa9":2}', id="an escaped letter"),
        pytest.param(b'{"":1,"":2}', id="an empty name"),
        pytest.param(b'{ "a" : 1 , "a" : 1 }', id="with blanks"),
        pytest.param(b'{"a":{},"a":[]}', id="empty values"),
        pytest.param(b'{"a":"}","a":"}"}', id="braces in strings"),
        pytest.param(b'{"model":"a","messages":' + HI + b',"Model":"b"}', id="in another case"),
        pytest.param('{"messages":[],"me\u017f\u017fages":[]}'.encode(), id="in letters that fold to others"),
    ],
)
def test_a_field_that_comes_twice_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="twice") as caught:
        Body(raw)
    assert caught.value.code == "invalid_json"


keys = st.text(max_size=4)


@given(
    st.dictionaries(keys, st.integers() | st.text(max_size=4) | st.lists(st.none(), max_size=2), max_size=5), st.data()
)
@thorough
def test_fields_twice_are_found_in_every_spelling(fields: dict[str, Any], data: st.DataObject) -> None:
    def blank() -> str:
        return data.draw(st.sampled_from(["", " ", "\n\t"]))

    def spelled(items: list[tuple[str, Any]]) -> bytes:
        written = [
            f"{blank()}{json.dumps(key, ensure_ascii=data.draw(st.booleans()))}{blank()}:{blank()}{json.dumps(value)}"
            for key, value in items
        ]
        return f"{blank()}{{{','.join(f'{item}{blank()}' for item in written)}}}{blank()}".encode()

    once = list(fields.items())
    assert Body(spelled(once)).raw
    if once:
        repeated = data.draw(st.sampled_from(once))[0]
        place = data.draw(st.integers(0, len(once)))
        with pytest.raises(BadRequest, match="twice"):
            Body(spelled([*once[:place], (repeated, data.draw(st.integers(0, 9))), *once[place:]]))


# --- looking without parsing ------------------------------------------------------------------------------------------


def test_a_body_that_only_passes_through_is_looked_at_shallowly() -> None:
    body = Body(b'{"model":"m","messages":[{"role":7,"content":{}}],"stream":true,"stream_options":{"a":1}}')
    body.check_messages()
    assert body.model == "m"
    assert body.stream is True
    assert body.get("stream_options") == {"a": 1}
    assert body.get("absent") is None


@pytest.mark.parametrize(
    ("value", "stream"), [(b"true", True), (b"false", False), (b"null", False), (b'"true"', False)]
)
def test_only_true_is_a_stream(value: bytes, stream: bool) -> None:
    assert Body(b'{"stream":' + value + b"}").stream is stream


@pytest.mark.parametrize(
    ("changes", "sent"),
    [
        pytest.param({}, b'{"a":1.0,"model":"m","z":{ "b":1e5 }}', id="nothing but blanks leaves"),
        pytest.param({"model": "caf\xe9"}, b'{"a":1.0,"model":"caf\xc3\xa9","z":{ "b":1e5 }}', id="in its place"),
        pytest.param({"new": [1]}, b'{"a":1.0,"model":"m","z":{ "b":1e5 },"new":[1]}', id="a new field comes last"),
    ],
)
def test_some_fields_are_set_and_the_others_keep_their_bytes(changes: dict[str, Any], sent: bytes) -> None:
    body = Body(b'{ "a" : 1.0 , "model":"m", "z":{ "b":1e5 } }')
    assert body.encoded(changes) == sent
    assert body.raw == b'{ "a" : 1.0 , "model":"m", "z":{ "b":1e5 } }'


# --- what an earlier request began with -------------------------------------------------------------------------------


class Latest(dict[bytes, ParsedList[Any]]):
    def put(self, opening: bytes, parsed: ParsedList[Any], size: int) -> None:
        self[opening] = parsed


def large(*texts: str) -> list[dict[str, Any]]:
    opening = {"role": "user", "content": "x" * 5000}
    return [opening, *({"role": "user", "content": text} for text in texts)]


def body_of(messages: list[dict[str, Any]], indent: int | None = None, earlier: EarlierLists | None = None) -> Body:
    tools = [{"type": "function", "function": {"name": f"t{n}", "description": "y" * 5000}} for n in range(2)]
    return Body(json.dumps({"model": "m", "messages": messages, "tools": tools}, indent=indent).encode(), earlier)


conversations = st.lists(
    st.lists(st.sampled_from(["a", "b", '"]},{', "\u00e9", "\\"]), max_size=6), min_size=1, max_size=5
)


@given(conversations, st.sampled_from([None, 1]))
@thorough
def test_a_request_is_the_same_whatever_came_before_it(asked: list[list[str]], indent: int | None) -> None:
    earlier = Latest()
    for texts in asked:
        found, alone = (body_of(large(*texts), indent, known).parse(100) for known in (earlier, None))
        assert found.encode() == alone.encode()
        assert [dict(each) for each in found.messages] == [dict(each) for each in alone.messages]
        assert [each.raw for each in found.messages] == [each.raw for each in alone.messages]


def test_what_was_there_before_is_the_same_object() -> None:
    earlier = Latest()
    first = body_of(large("a", "b"), earlier=earlier).parse()
    grown = body_of(large("a", "b", "c", "d"), earlier=earlier).parse()
    other = body_of(large("a", "x"), earlier=earlier).parse()

    assert [one is two for one, two in zip(first.messages, grown.messages, strict=False)] == [True] * 3
    assert [one is two for one, two in zip(first.messages, other.messages, strict=False)] == [True, True, False]
    assert first.tools is grown.tools
    assert len({*map(id, body_of(large("a", "a"), earlier=earlier).parse().messages)}) == 3


@pytest.mark.parametrize(("count", "length"), [(10, 20_000), (100, 2_000)])
def test_a_parsed_list_says_how_much_memory_it_takes(count: int, length: int) -> None:
    earlier, asked = Latest(), [{"role": "user", "content": f"{place} {'x' * length}"} for place in range(count)]
    tracemalloc.start()
    try:
        body_of(asked, earlier=earlier).parse()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken <= sum(kept.size for kept in earlier.values()) <= 1.5 * taken, "what steps derive from it comes on top"


def test_new_messages_are_checked_with_the_earlier_ones() -> None:
    earlier, parts = Latest(), [{"type": "text", "text": "x"}] * 5
    body_of(large("a"), earlier=earlier).parse()
    with pytest.raises(BadRequest, match="at most 4"):
        body_of([*large("a"), {"role": "user", "content": parts}], earlier=earlier).parse(4)
    with pytest.raises(BadRequest, match=r"messages\[2\].tool_call_id must be a string"):
        body_of([*large("a"), {"role": "tool", "tool_call_id": 1, "content": "x"}], earlier=earlier).parse()


@pytest.mark.parametrize(
    "end",
    [
        b"]}",
        b",]}",
        b", ]}",
        b' {"role":"user"}]}',
        b"x]}",
        b"",
        b"]",
        b',"a"]}',
        b'], "messages": []}',
        b',{"role":1}]}',
        b',{"role":"user","content":"\\ud800"}]}',
        b"]}}",
        b'], "model": "n"}',
        b",\xff]}",
        b',{"role":"user","content":"c"} ]}',
        b',{"role":"user"}], "tools": []}',
        b',{"role":"user"}], "a": [{"role":"user"}]}',
        b',{"role":"user"}] ]}',
        b',{"role":"user"},]}',
    ],
)
def test_what_follows_a_known_beginning_is_refused_or_read_as_in_a_new_body(end: bytes) -> None:
    start = json.dumps({"model": "m", "messages": large("a", "b")}).encode()[:-2]

    def outcome(earlier: EarlierLists | None) -> str | list[bytes]:
        try:
            return [message.raw for message in Body(start + end, earlier).parse(100).messages]
        except BadRequest as error:
            return str(error)

    parsed, placed = Latest(), Latest()
    Body(start + b"]}", parsed).parse()
    Body(start + b"]}", placed)
    assert outcome(parsed) == outcome(placed) == outcome(None)


def test_a_body_holds_what_stands_in_its_new_part_and_knows_what_did_not_stand_in_the_beginning() -> None:
    earlier = Latest()
    assert not body_of(large("a"), earlier=earlier).holds(b'sign"')
    assert not body_of(large("a", "b"), earlier=earlier).holds(b'sign"')
    signed = body_of([*large("a", "b"), {"role": "user", "content": "c", "sign": 1}], earlier=earlier)
    assert signed.holds(b'sign"')
    assert body_of([*large("a", "b"), {"role": "user", "sign": 1}], earlier=earlier).holds(b'sign"')


def test_values_of_a_growing_body_count_together_and_their_number_has_a_bound() -> None:
    earlier, piece = Latest(), {"role": "user", "content": [[]] * 90_000}
    with pytest.raises(BadRequest, match="more than 500,000 values"):
        for count in range(1, 5):
            body_of([*large("a"), *[piece] * count], earlier=earlier)
    with pytest.raises(BadRequest, match="more than 1,000 fields"):
        Body(with_value(b"1")[:-1] + b"," + DENSE["keys"](1_000)[1:])
    message = b'{"role":"user","content":"x","more":' + DENSE["lists"](60_000) + b"}"
    with pytest.raises(BadRequest, match=r"messages\[0\] has more than 100,000 values"):
        Body(b'{"model":"m","messages":[' + message + b"]}").parse()


def test_a_body_that_resumes_keeps_its_bytes_under_another_model() -> None:
    earlier = Latest()
    body_of(large("a"), earlier=earlier)
    grown = body_of(large("a", "b"), earlier=earlier)
    assert json.loads(grown.encoded({"model": "n"})) == {**json.loads(grown.raw), "model": "n"}
    assert grown.raw_of("messages") == body_of(large("a", "b")).raw_of("messages")
