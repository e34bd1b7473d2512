"""What an earlier text shows need not be said again; the note that stands there can be followed."""

import re
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.chat import Message
from proxy.compaction import references
from proxy.compaction.references import (
    Referred,
    Shown,
    ShownTexts,
    is_referring,
    make_standing,
    shown,
    with_references,
    with_standing,
)
from proxy.context import Identity
from proxy.models.encodings import load_encoder
from proxy.state.cache import OnceService
from proxy.testing import context
from tests.talk import calls, result

ROOT = Path(__file__).parents[2]
LINES = [f"def step_{n}(total): return total + {n}" for n in range(60)]
NOTE = re.compile(r"\[… (\d+) lines? as above; (?:(\d+)-(\d+)(?:, there (\d+)-(\d+))?, )?from (.*?)(?: to (.*))?\]")


def known(*texts: str) -> list[Shown]:
    return [each for text in texts if (each := shown(text)) is not None]


def numbered(lines: list[str], first: int = 1, sign: str = ":") -> str:
    return "\n".join(f"{n}{sign}{line}" for n, line in enumerate(lines, first))


@pytest.mark.parametrize("sign", [":", "\t", "| ", "→"])
def test_lines_are_found_again_though_their_numbers_have_changed(sign: str) -> None:
    earlier = numbered(LINES, 1, sign)
    later = numbered([LINES[0], "a new line", *LINES[1:50]], 1, sign)
    made = with_references(later, known(earlier))
    note = NOTE.fullmatch(made.text.split("\n")[-1])
    assert made.used == {0}
    assert note is not None
    assert [*map(int, note.groups()[:5])] == [49, 3, 51, 2, 50]


def test_what_is_beside_a_change_is_shown_and_a_long_line_not_twice() -> None:
    later = "\n".join([*LINES[:30], "changed", *LINES[31:]])
    made = with_references(later, known("\n".join(LINES)), beside=3)
    assert made.text.split("\n")[1:-1] == [*LINES[27:30], "changed", *LINES[31:34]]
    line = " ".join(LINES)
    assert with_references(line, known(line)).text == "[… 1 line as above; from def step_0(total): retur…]"


def test_no_note_has_more_tokens_than_its_lines() -> None:
    encode, pages = load_encoder("o200k_base"), sorted(ROOT.glob("docs/**/*.md"))
    lines = [line for page in pages for line in page.read_text().split("\n")]
    texts = ["\n".join(lines[at : at + 2 + at % 3]) for at in range(0, len(lines) - 4, 2)]
    notes = [(text, made.text) for text in texts if (made := with_references(text, known(text))).used]
    assert len(notes) > 300
    assert not [(text, note) for text, note in notes if encode(note) > encode(text)]


@pytest.mark.parametrize("blank", ["", " ", "7:"])
def test_run_goes_on_across_blank_lines(blank: str) -> None:
    text = "\n".join(line for each in LINES for line in (each, blank))
    assert NOTE.fullmatch(with_references(text, known(text)).text)


@pytest.mark.parametrize(("earlier", "later"), [
    pytest.param(["10:00:01 up", "10:00:02 up", "10:00:03 up"] * 9, ["11:00:01 up", "11:00:02 up", "11:00:03 up"] * 9, id="times"),
    pytest.param([f"{n * 7}: hit" for n in range(40)], [f"{n * 9}: hit" for n in range(40)], id="numbers of hits"),
    pytest.param(LINES[:1], LINES[:1], id="one line"),
    pytest.param(["}", ")", "", "}"] * 5, ["}", ")", "", "}"] * 5, id="shorter than the note"),
    pytest.param(["[… 12 lines]"] * 40, ["[… 12 lines]"] * 40, id="notes"),
])  # fmt: skip
def test_other_lines_are_shown_again(earlier: list[str], later: list[str]) -> None:
    assert with_references("\n".join(later), known("\n".join(earlier))).text == "\n".join(later)


def test_lines_that_stand_are_referred_to_and_repeats_of_notes_are_one() -> None:
    first, second = "\n".join(LINES[:20]), "\n".join([*LINES[:20], *LINES[30:40]])
    made = with_references(second, known(first))
    assert made.shown is not None
    third = with_references(second, [*known(first), made.shown])
    assert NOTE.fullmatch(third.text)
    assert third.used == {1}
    whole = "\n".join(LINES)
    earlier = known(whole)
    for _ in range(6):
        made = with_references(whole, earlier)
        assert made.used == {0}
        assert made.shown is not None
        earlier.append(made.shown)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=40), min_size=2, max_size=4))
def test_a_note_can_be_followed_without_a_tool(texts: list[list[int]]) -> None:
    earlier: list[Shown] = []
    read: list[str] = []
    for text in texts:
        made = with_references("\n".join(LINES[n] for n in text), earlier)
        read.append("\n".join(line for each in made.text.split("\n") for line in _followed(each, read)))
        assert read[-1] == "\n".join(LINES[n] for n in text)
        earlier += [made.shown] if made.shown is not None else []


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=12), min_size=2, max_size=9))
def test_blocks_of_texts_hide_none_of_them(texts: list[list[int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        each: list[list[Referred]] = []
        for size in (2, 1000):
            patch.setattr(references, "_BLOCK", size)
            earlier = ShownTexts()
            each.append([])
            for text in texts:
                each[-1].append(with_references("\n".join(LINES[n] for n in text), earlier))
                earlier = earlier.then([one for one in [each[-1][-1].shown] if one is not None])
            assert [earlier[place].keys for place in range(len(earlier))] == [
                made.shown.keys for made in each[-1] if made.shown is not None
            ]
    assert [made[:2] for made in each[0]] == [made[:2] for made in each[1]]


def _followed(line: str, read: list[str]) -> list[str]:
    """The lines that a reader of what stands above takes a note for."""
    note = NOTE.fullmatch(line)
    if note is None:
        return [line]
    count, first, last = int(note[1]), note[6].rstrip("…"), (note[7] or note[6]).rstrip("…")
    runs = (run for text in reversed(read) for run in _runs(text, count))
    return next(run for run in runs if run[0].startswith(first) and run[-1].startswith(last))


def _runs(text: str, count: int) -> list[list[str]]:
    lines = text.split("\n")
    return [lines[at : at + count] for at in range(len(lines) - count + 1)]


def test_what_leaves_is_said_again_and_messages_without_notes_are_the_same() -> None:
    whole = "\n".join(LINES)
    short = with_references(f"new\n{whole}", known(whole)).text
    later = result(f"new\n{whole}", "2").with_changes(content=short)
    kept = [calls("2"), later]

    assert is_referring(short)
    assert with_standing([calls("c1"), result(whole), *kept])[3].text == short
    assert with_standing(kept)[1].text == f"new\n{whole}"
    assert with_standing([calls("c1"), result("other"), *kept])[3].text == f"new\n{whole}"
    messages = [calls("c1"), result("text"), Message({"role": "assistant", "content": "3 lines as above"})]
    assert with_standing(messages) is messages


async def test_large_results_that_refer_to_others_are_put_together_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, real = set[str](), references.with_standing

    def noted(messages: Sequence[Message]) -> Sequence[Message]:
        threads.add(threading.current_thread().name)
        return real(messages)

    monkeypatch.setattr(references, "with_standing", noted)
    service = OnceService()
    ctx = context(once=service.bind(Identity("t")))
    whole = "\n".join(LINES * 9)
    short = with_references(f"new\n{whole}", known(whole)).text
    later = result(f"new\n{whole}", "2").with_changes(content=f"{short}{' more' * 9000}")
    messages = [calls("c1"), result("other"), calls("2"), later]
    assert await make_standing(messages, ctx) == real(messages)
    assert threads
    assert threading.main_thread().name not in threads
    assert await make_standing(messages[:2], ctx) == messages[:2]
    service.close()
