"""What is plainly wrong with an answer, and what only looks like it."""

from typing import Any

import pytest

from policies.self_correct import SelfCorrect, faults
from proxy.chat import ChatRequest, Fields, Message, Tool
from proxy.chat.answer import Answer

SPANISH = "¿Dónde está la estación y cómo llego desde el hotel que reservé para esta noche?"
ENGLISH = "The station is on the other side of the river, and you can walk there from your hotel in ten minutes."
IN_SPANISH = (
    "La estación está al otro lado del río y puedes llegar andando desde el hotel en diez minutos, no está lejos."
)
REFUSAL = "I'm sorry, but I can't help with that request about the locked archive."
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}},
    "required": ["city", "nights"],
    "additionalProperties": False,
}
BOOK = Tool({"type": "function", "function": {"name": "book", "parameters": SCHEMA}})


def sent(*said: str, tools: tuple[Tool, ...] = (), system: str = "", **rest: Any) -> ChatRequest:
    """A request in which user and assistant take turns."""
    talk = [Message({"role": ("user", "assistant")[place % 2], "content": text}) for place, text in enumerate(said)]
    head = [Message({"role": "system", "content": system})] if system else []
    return ChatRequest("m", (*head, *talk), tools, Fields(rest))


def found(request: ChatRequest, answer: Answer) -> dict[str, str]:
    return faults(request, answer, frozenset(SelfCorrect().kinds))


def call(arguments: str, name: str = "book") -> Answer:
    return Answer(calls=[(name, arguments)], finish="tool_calls")


def schema_format(kind: str = "json_schema") -> dict[str, Any]:
    return {"type": kind, "json_schema": {"name": "x", "schema": SCHEMA}}


@pytest.mark.parametrize(("request_", "answer", "kinds"), [
    pytest.param(sent("hi"), Answer("hello", finish="stop"), set(), id="a good answer"),
    pytest.param(sent("hi"), Answer(" \n", finish="stop"), {"empty"}, id="an empty one"),
    pytest.param(sent("hi"), Answer("", finish="length"), set(), id="cut off before the first word"),
    pytest.param(sent("hi"), Answer("", finish=None), set(), id="broken off"),
    pytest.param(sent("hi"), Answer("", finish="stop", other=True), set(), id="audio"),
    pytest.param(sent("hi"), Answer(refusal="no", finish="stop"), set(), id="one refusal"),
    pytest.param(sent(SPANISH), Answer(ENGLISH, finish="stop"), {"language"}, id="English to Spanish"),
    pytest.param(sent(ENGLISH), Answer(IN_SPANISH, finish="stop"), {"language"}, id="Spanish to English"),
    pytest.param(sent(SPANISH), Answer(IN_SPANISH, finish="stop"), set(), id="Spanish to Spanish"),
    pytest.param(sent(SPANISH), Answer("The station is near.", finish="stop"), set(), id="too short to tell"),
    pytest.param(sent(SPANISH + " Contesta en inglés."), Answer(ENGLISH, finish="stop"), set(), id="as it was wished"),
    pytest.param(sent("Translate: " + SPANISH), Answer(ENGLISH, finish="stop"), set(), id="a translation"),
    pytest.param(sent(SPANISH, system="Always answer in English."), Answer(ENGLISH, finish="stop"), set(), id="as the operator wishes"),
    pytest.param(sent(SPANISH, system="Responde siempre en español."), Answer(ENGLISH, finish="stop"), {"language"}, id="as neither wishes"),
    pytest.param(sent("In English, please. " + ENGLISH), Answer(IN_SPANISH, finish="stop"), {"language"}, id="the user's language by name"),
    pytest.param(sent(SPANISH, system="Responde en el idioma del documento."), Answer(ENGLISH, finish="stop"), set(), id="a language without a name"),
    pytest.param(sent(SPANISH, system="Answer in the user's language."), Answer(ENGLISH, finish="stop"), {"language"}, id="the user's language"),
    pytest.param(sent(SPANISH, system="Responde en el idioma del usuario."), Answer(ENGLISH, finish="stop"), {"language"}, id="the user's language in Spanish"),
    pytest.param(sent(SPANISH, system="Use the same language as the user."), Answer(ENGLISH, finish="stop"), {"language"}, id="the same language as the user"),
    pytest.param(sent(SPANISH, system="Use the language of the user. Translate."), Answer(ENGLISH, finish="stop"), set(), id="the user's language and translation"),
    pytest.param(sent(ENGLISH, system="You help with Japanese."), Answer(IN_SPANISH, finish="stop"), set(), id="a language that is not told"),
    pytest.param(sent(ENGLISH, "ok", SPANISH), Answer(ENGLISH, finish="stop"), set(), id="who changes languages"),
    pytest.param(sent("hotel madrid"), Answer(ENGLISH, finish="stop"), set(), id="no language to tell"),
    pytest.param(sent(SPANISH), Answer("```python\n" + ENGLISH + "\n```", finish="stop"), set(), id="code"),
    pytest.param(sent("x", response_format={"type": "json_object"}), Answer("Sure: {}", finish="stop"), {"json"}, id="words around JSON"),
    pytest.param(sent("x", response_format={"type": "json_object"}), Answer("{}", finish="stop"), set(), id="JSON"),
    pytest.param(sent("x", response_format={"type": "text"}), Answer("words", finish="stop"), set(), id="text was asked for"),
    pytest.param(sent("x", response_format=schema_format()), Answer('{"city": "Leon"}', finish="stop"), {"json"}, id="another schema"),
    pytest.param(sent("x", response_format=schema_format()), Answer('{"city": "Leon", "nights": 2}', finish="stop"), set(), id="the schema"),
    pytest.param(sent("x", response_format=schema_format()), Answer('{"city": "Le', finish="length"), set(), id="JSON cut off"),
    pytest.param(sent("x", response_format="odd"), Answer("words", finish="stop"), set(), id="an odd format"),
    pytest.param(sent("x", tools=(BOOK,)), call('{"city": "Leon", "nights": 2}'), set(), id="arguments that fit"),
    pytest.param(sent("x", tools=(BOOK,)), call('{"city": "Leon"}'), {"arguments"}, id="one is missing"),
    pytest.param(sent("x", tools=(BOOK,)), call('{"city": "Leon", "nights": "two"}'), {"arguments"}, id="of another type"),
    pytest.param(sent("x", tools=(BOOK,)), call('{"city": '), {"arguments"}, id="no JSON"),
    pytest.param(sent("x", tools=(BOOK,)), call("{", name="other"), set(), id="a tool that nobody knows"),
    pytest.param(sent("x", REFUSAL, "please"), Answer(REFUSAL, finish="stop"), {"refusal"}, id="the same refusal"),
    pytest.param(sent("x", REFUSAL, "please"), Answer("I cannot help with opening hours in Lisbon, sorry.", finish="stop"), set(), id="another refusal"),
    pytest.param(sent("x", "All done.", "again"), Answer("All done.", finish="stop"), set(), id="the same answer"),
    pytest.param(sent("x", "Lo siento, no puedo ayudar con esa petición.", "porfa"), Answer("Lo siento, no puedo ayudar con esa petición.", finish="stop"), {"refusal"}, id="in Spanish"),
])  # fmt: skip
def test_faults(request_: ChatRequest, answer: Answer, kinds: set[str]) -> None:
    assert set(found(request_, answer)) == kinds


def test_only_what_is_asked_for_is_looked_for_and_a_sentence_quotes_nothing() -> None:
    request = sent("x")
    refused = Message({"role": "assistant", "content": None, "refusal": "No locked archives."})
    request = request.with_messages([*request.messages, refused, Message({"role": "user", "content": "please"})])
    assert set(found(request, Answer(refusal="No locked archives.", finish="stop"))) == {"refusal"}
    assert faults(sent("hi"), Answer("", finish="stop"), frozenset({"json"})) == {}
    told = found(sent("x", tools=(BOOK,)), call('{"nights": "SECRET", "SECRET": 1}'))["arguments"]
    assert "book" in told
    assert "$ lacks city" in told
    assert "$.nights is not as it must be" in told
    assert "SECRET" not in told
