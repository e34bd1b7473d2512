import pytest

from proxy.compaction.fitting import fitted, own_words

DOCUMENT = "\n\n".join(f"Part {n}\n\n" + "There was little to report from that day. " * 20 for n in range(90))
ROWS = "\n".join(f"K-{n},{n * 7},open" for n in range(3000))


@pytest.mark.parametrize(
    "question",
    ["Which part names the bridge, and why?", "Resume los riesgos en tres puntos.", "この文書の要点は？", "tl;dr 🙏"],
)
@pytest.mark.parametrize("document", [DOCUMENT, ROWS, '{"a": [' + ",".join(map(str, range(9000))) + "]}"])
@pytest.mark.parametrize(
    "form",
    ["{question}\n\n{document}", "{document}\n\n{question}", "{question}\n```\n{document}\n```", "{question}\n{document}", "<doc>\n{document}\n</doc>\n{question}\n<doc>\n{document}\n</doc>"],
)  # fmt: skip
def test_the_question_stays_word_for_word(form: str, document: str, question: str) -> None:
    text = form.format(question=question, document=document)
    found = fitted(text, (), 6000)
    assert question in found
    assert len(found) < 7000
    assert any(question in words for words in own_words(text))


def test_a_question_is_short_or_first_and_what_it_names_is_found_in_the_document() -> None:
    text = f"The minutes of the year\n\n{DOCUMENT}\n\nWho was absent?"
    assert own_words(text)[0].endswith("Who was absent?")
    assert own_words("Find order 7.\n\nThanks!") == ("Find order 7.\n\nThanks!",)
    found = fitted(f"{ROWS}\n\nWhat is K-2222 at?", (), 4000)
    assert "K-2222,15554,open" in found
    assert "[lines 22" in found


def test_a_documents_first_paragraphs_and_what_stands_beside_a_question_are_none() -> None:
    text = f"May I keep a cat?\n\n{DOCUMENT}\n\nThank you!"
    assert own_words(text)[0].startswith("May I keep a cat?")
    assert all("Part 1" not in words for words in own_words(text))
    clauses = "\n\n".join(f"§ {n} The tenant pays for the repair of item {n}." for n in range(900))
    assert own_words(f"Here it is:\n\n{clauses}\n\nIs a dog allowed?") == ("Is a dog allowed?", "Here it is:")
