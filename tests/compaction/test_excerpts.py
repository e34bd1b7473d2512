import json

import pytest

from proxy.compaction.excerpts import excerpt

PROSE = "\n\n".join(
    f"## Section {n}\n\nNothing of note was said about subject {n * 7}. "
    + " ".join(f"Day {n * day} went by." for day in range(1, 21))
    for n in range(90)
)
LOG = "\n".join(f"2026-03-01 10:{n // 60:02}:{n % 60:02} INFO request r-{n * 37} took {n} ms" for n in range(900))
ROWS = "sku;ort;menge\n" + "\n".join(f"K-{n * 13};Lager {n % 7};{n}" for n in range(900))
RECORDS = [{"id": f"T-{n * 11}", "state": "open", "owner": f"person {n}"} for n in range(400)]


@pytest.mark.parametrize(("text", "query", "shown"), [
    pytest.param(PROSE.replace("subject 322.", "subject 322: the bridge is closed."), "Is the bridge closed?", "the bridge is closed", id="prose"),
    pytest.param(LOG, "Why was r-20720 slow?", "request r-20720 took 560 ms", id="a log"),
    pytest.param(ROWS, "Wo liegt K-5044?", "K-5044;Lager 3;388", id="a table"),
    pytest.param(json.dumps({"tickets": RECORDS}), "¿De quién es T-3300?", '[tickets[300]] {"id":"T-3300","state":"open","owner":"person 300"}', id="records"),
    pytest.param(json.dumps(RECORDS)[:-900], "T-3300", '[[300]] {"id":"T-3300"', id="records that are cut off"),
    pytest.param(json.dumps({"page": {"body": f"{PROSE}\n\nThe key hangs behind door 🚪 nine.\n\n{PROSE}"}}), "behind which door hangs the key?", "[page.body] ", id="a text in JSON"),
    pytest.param("<html><body>" + "".join(f"<p>Ticket {n} is shut.</p><div>{'x ' * 9}</div>" for n in range(400)) + "<p>Ticket 9911 is late.</p></body></html>", "9911?", "Ticket 9911 is late.", id="a page"),
])  # fmt: skip
def test_what_was_asked_for_stands_there_word_for_word(text: str, query: str, shown: str) -> None:
    found = excerpt(text, [query], 4000)
    assert shown in found
    assert len(found) < 4400
    assert excerpt(text, [query], 4000) == found


def test_a_table_keeps_its_columns_and_passages_name_their_lines() -> None:
    assert excerpt(ROWS, ["K-5044"], 3000).startswith("sku;ort;menge\n")
    found = excerpt(LOG, ["r-20720"], 3000)
    label = found.rpartition("[lines ")[2].partition("]")[0]
    first, last = map(int, label.split("-"))
    assert "r-20720 " in "\n".join(LOG.splitlines()[first - 1 : last])


def test_words_that_the_best_passage_lacks_are_looked_for_elsewhere() -> None:
    text = "\n".join(["name;member;owes", *(f"P{n};M-{n * 9};{n}.50" for n in range(900))])
    found = excerpt(text, ["How much does the member M-5400 owe? And what is the member's name?"], 3000)
    assert "P600;M-5400;600.50" in found


@pytest.mark.parametrize("query", ["要約してください", "Ist ein Labrador nothing of note?", "subject by subject"])
def test_without_telling_words_in_common_the_outline_stands_alone(query: str) -> None:
    found = excerpt(PROSE, [query], 3000)
    assert "passages" not in found
    assert "## Section 0" in found


@pytest.mark.parametrize(
    "text", ["", "word " * 9000, "x" * 40000, "[" * 900 + "]" * 900, json.dumps(list(range(9000)))]
)
@pytest.mark.parametrize("room", [0, 50, 2000])
def test_any_text_fits(text: str, room: int) -> None:
    assert len(excerpt(text, ["word 8000?"], room)) <= room + 100
