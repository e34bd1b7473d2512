"""What programs print keeps what went wrong, and nothing is cut where a reader would be misled."""

import json

import pytest

from proxy.compaction import compact, treated
from proxy.compaction.identifiers import gathered
from proxy.compaction.outline import outline
from proxy.compaction.shortening import cut, gap, parts

NAMES = ["".join(chr(ord("a") + int(digit)) for digit in str(n)) for n in range(60)]
NOISE = "\n".join(f"tests/test_batch.py::test_{name} PASSED [{n}%]" for n, name in enumerate(NAMES))
PYTEST = f"{'.' * 200}\n{NOISE}\nE       KeyError: 'vat_id'\ntests/test_batch.py:41: KeyError\n1 failed, 60 passed in 3.21s\n"
FRAMES = "\n".join(f"\tat com.example.{name}.Service.run(Service.java:{n})" for n, name in enumerate(NAMES))
JAVA = f'Exception in thread "main" java.lang.IllegalStateException: no key for plan 7\n{FRAMES}\n\t... 31 more'
GCC = "\n".join(f"gcc -O2 -Wall -Iinclude -c src/{name}.c -o build/{name}.o" for name in NAMES)
MAKE = f"{GCC}\nsrc/pay.c:88:14: error: too few arguments to 'charge'\n{GCC}\nmake: Leaving directory '/srv/pay'"


def form(text: str) -> str:
    found = compact(text)
    assert found is not None
    return found.text


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(PYTEST, ["E       KeyError: 'vat_id'", "…1 failed, 60 passed in 3.21s"], id="tests"),
        pytest.param(JAVA, [JAVA.splitlines()[0]], id="a trace"),
        pytest.param(MAKE, [MAKE.splitlines()[60], "…make: Leaving directory '/srv/pay'"], id="a build"),
    ],
)
def test_errors_and_a_short_last_line_stay_whole(text: str, lines: list[str]) -> None:
    short = form(text)
    assert len(short) < len(text) / 4
    assert set(lines) <= set(short.splitlines())
    assert all(line in json.loads(form(json.dumps({"stdout": text, "code": 1})))["stdout"] for line in lines)


@pytest.mark.parametrize(
    ("usual", "lines"),
    [
        (
            "ok {n} - adds up the total of order {n}",
            ["not ok 80 - takes off the discount", "  expected: 90", "# pass 79"],
        ),
        (
            "www  {n} 0.1  0.3 20{n} 90{n} ?  S  10:00  0:00 pool",
            ["www  1013 99.0  0.3 200 900 ?  R  10:00  0:00 pool"],
        ),
        (
            "aws_instance.web[{n}]: Refreshing state...",
            ["  # aws_security_group.db must be replaced", "Plan: 1 to add."],
        ),
    ],
)
def test_of_lines_that_differ_by_numbers_only_the_others_stay(usual: str, lines: list[str]) -> None:
    said = [usual.format(n=n) for n in range(1, 80)]
    short = form("\n".join([*said, *lines, *said[:20]])).splitlines()
    assert set(lines) <= set(short)
    assert len(short) < 30


def test_the_outline_of_what_a_program_printed_has_its_errors() -> None:
    assert MAKE.splitlines()[60] in outline(MAKE, 1000)


def test_of_many_errors_the_first_and_the_last_stay() -> None:
    text = "\n".join(f"step {n}: an error of which nothing more is known, number {n}" for n in range(99))
    lines = form(f"Begin\n{text}\nEnd").splitlines()
    assert [line for line in (text.splitlines()[0], text.splitlines()[-1]) if line not in lines] == []
    assert len(lines) < 20


def test_code_that_names_an_error_reports_none() -> None:
    code = "\n".join(f"Step {n} of what is to be done\nexpect_error(\n" for n in range(60))
    assert "expect_error" not in form(f"A page of it\n{code}\nIts end").splitlines()


def test_a_line_of_a_log_that_reports_an_error_stays_whole() -> None:
    told = "column 'vat_id' has 14 characters, max 12 (supplier 'Ørsted A/S')"
    error = f"2024-11-19 02:17:59 ERROR batch 77 of tonight's import was rejected: {told}; also {told}; the others were kept"
    lines = [f"2024-11-18 02:{n % 60:02d}:00 INFO processed batch {n} of the night's import" for n in range(120)]
    assert error in form("\n".join([*lines, error, *lines])).splitlines()


def test_a_line_with_another_state_than_nearly_all_of_its_kind_stays() -> None:
    lines = [
        f"2026-11-24 10:{n % 60:02d}:11 web{n % 3} GET /orders/{n} {502 if n == 333 else 200} {n % 90}ms"
        for n in range(900)
    ]
    short = form("\n".join(lines)).splitlines()
    assert lines[333] in short
    assert len(short) < 40


def test_the_outline_of_a_long_program_has_its_first_and_its_last_declarations() -> None:
    step = "    # one step of it\n    if broken:\n        raise ValueError('an error of this step')\n    total = total + 1\n"
    program = "\n".join(f"def step_{n}(total: int) -> int:\n{step}    return total\n" for n in range(400))
    short = form(program)
    assert len(short) < len(program) / 4
    assert "def step_20(" in short
    assert "def step_399(" in short


def test_a_record_in_another_state_than_nearly_all_stays() -> None:
    pods = [
        {"name": f"web-{n}", "status": {"phase": "Pending" if n == 77 else "Running", "at": n * 7}} for n in range(300)
    ]
    lines = form(json.dumps({"pods": pods})).splitlines()
    assert '["web-77",["Pending",539]],' in lines
    assert len(lines) < 80


def test_a_row_of_a_table_that_reports_an_error_stays() -> None:
    rows = [f"job-{n};{'failed: disk full' if n == 333 else 'done'};{n * 7};{n * 3}" for n in range(600)]
    assert rows[333] in form("\n".join(["job;state;ms;rows", *rows])).splitlines()


def test_a_listing_of_nothing_but_errors_is_shortened() -> None:
    hits = "\n".join(f"src/module_{n}.py:{n}:        raise ValueError('error {n} of this module')" for n in range(300))
    assert len(form(hits)) < len(hits) / 2


def test_a_cut_falls_behind_a_word_where_the_one_at_its_place_is_long() -> None:
    address = "https://example.com/a/very/long/path/that/ends/here"
    first, middle, last = parts(f"Word {'a ' * 90}{address}", 40, 20)
    assert (first[-2:], last) == (" a", address)
    assert middle.split() == ["a"] * len(middle.split())


def test_of_an_encoded_picture_hardly_anything_stays() -> None:
    picture = "iVBORw0KGgo" * 200
    assert len(cut(picture, 240)) < 80
    short = treated(json.dumps({"path": "logo.png", "content": picture})).form
    assert short is not None
    assert len(short) < 120


def test_a_text_without_spaces_is_no_encoded_picture() -> None:
    assert len(cut("予約番号を確認しました。" * 40, 240)) > 200


def test_a_value_that_another_one_begins_with_is_not_known() -> None:
    assert gathered("LIMIT_3 and LIMIT_39", 100, known="up to LIMIT_39") == "LIMIT_3"


def test_names_of_left_out_rows_are_told_apart_and_stand_once() -> None:
    rows = [{"id": f"A-{n}", "supplier": ("Ørsted A/S", "Nord 24 AB")[n % 2], "price": n} for n in range(200)]
    note = next(line for line in form(json.dumps(rows)).splitlines() if "more; " in line)
    assert note.endswith("; supplier: Nord 24 AB, Ørsted A/S],")


def test_one_thing_is_no_plural() -> None:
    assert [gap(1, "line"), gap(2, "line"), gap(1, "more")] == ["[… 1 line]", "[… 2 lines]", "[… 1 more]"]


def test_the_form_of_a_page_is_of_its_main_part() -> None:
    links = "".join(f"<li><a href='/wiki/P{n}'>Page {n}</a></li>" for n in range(200))
    said = "".join(f"<p>The rules of {1990 + n} let a number have {n} letters.</p>" for n in range(40))
    page = f"<html><head><title>VAT numbers</title></head><body><ul>{links}</ul><main><h1>Format</h1>{said}</main></body></html>"
    assert form(page).startswith("VAT numbers\nFormat\nThe rules of 1990")
    assert "/wiki/" not in form(page)
    assert "/wiki/P0" in form(page.replace("main>", "div>"))
