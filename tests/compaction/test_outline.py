import pytest

from proxy.compaction.outline import outline

PARAGRAPH = "The committee met again and nothing that was said there changed what had been known for long."
FILLER = "\n".join([PARAGRAPH] * 6)


def document(*titles: str) -> str:
    return "\n\n".join(f"{title}\n\nAbout {title.split()[-1]}: a first sentence.\n{FILLER}" for title in titles)


@pytest.mark.parametrize(
    "titles",
    [
        pytest.param(["# Scope", "## Terms", "## Payment", "# Annexes"], id="markdown"),
        pytest.param(["1. Scope", "1.2 Terms", "2. Payment", "10.1 Annexes"], id="numbers"),
        pytest.param(["SCOPE", "TERMS OF USE", "PAYMENT", "ANNEXES"], id="capitals"),
        pytest.param(["Scope", "Terms of use", "How to pay", "Annexes"], id="lines that stand alone"),
        pytest.param(["§ 1 Scope", "§ 2 Terms", "§ 10 Payment", "§§ 11 and 12"], id="signs for sections"),
        pytest.param(["Artículo 1", "Artículo 2", "Capítulo III", "Anexo A"], id="words for parts"),
    ],
)
def test_headings_and_what_follows_them_stay(titles: list[str]) -> None:
    found = outline(document(*titles)).splitlines()

    assert [line for line in found if line in titles] == titles
    assert sum(line.startswith("About ") for line in found) == len(titles)


def test_headings_leave_only_as_far_as_they_have_no_room() -> None:
    titles = [f"§ {n} Of the duties of party {n}" for n in range(10, 70)]
    found = outline(document(*titles), room=2300).splitlines()

    assert sum(line in titles for line in found) > 38


def test_identifiers_of_what_is_left_out_stay() -> None:
    text = document("# One", "# Two").replace("nothing", "invoice INV-20931 of 4711.50")

    assert "INV-20931" in outline(text)
    assert "4711.50" in outline(text)
    assert len(outline(text)) < len(text)


def test_a_document_of_nothing_but_headings_has_a_short_outline() -> None:
    text = "\n".join(f"# Heading {n}" for n in range(20_000))
    found = outline(text)

    assert len(found) < len(text) / 10
    assert found.startswith("# Heading 0\n")
    assert "# Heading 19999" in found


def test_a_text_without_lines_keeps_both_ends() -> None:
    found = outline("begin " + "word " * 5000 + "end")

    assert found.startswith("begin word")
    assert found.endswith("end")
    assert len(found) < 3000
