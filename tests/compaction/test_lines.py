"""Of a large text whole lines stay, with what they stand under: those that tell most."""

import json
import re
from base64 import b64encode
from random import Random

import pytest

from proxy.compaction.form import rows
from proxy.compaction.layout import lay_out
from proxy.compaction.lines import condensed, short_form

NAMES = ["".join(chr(ord("a") + int(digit)) for digit in str(n)) for n in range(60)]


def form(text: str) -> str:
    found = short_form(text)
    assert found is not None
    return found


def kept(text: str) -> list[str]:
    """The lines of the form of a text, without notes."""
    return [line for line in form(text).split("\n") if not line.strip().startswith("[… ")]


def records(rare: str = "REVOKED", usual: str = "ACTIVE") -> list[dict[str, object]]:
    return [
        {"id": f"LIC-{n:04}", "holder": f"Holder {n * 7}", "state": rare if n == 333 else usual} for n in range(500)
    ]


CELLS = [tuple(map(str, each.values())) for each in records()]
XML = "".join(f"<lic><id>{a}</id><holder>{b}</holder><state>{c}</state></lic>" for a, b, c in CELLS)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("id,holder,state\n" + "\n".join(map(",".join, CELLS)), "LIC-0333,Holder 2331,REVOKED", id="csv"),
        pytest.param("\n".join(map("\t".join, CELLS)), "LIC-0333\tHolder 2331\tREVOKED", id="tabs"),
        pytest.param("\n".join(f"| {' | '.join(row)} |" for row in CELLS), "| LIC-0333 | Holder 2331 | REVOKED |", id="markdown"),
        pytest.param("\n".join(map(json.dumps, records())), ' ["LIC-0333","Holder 2331","REVOKED"]', id="lines of json"),
        pytest.param(json.dumps(records()), ' ["LIC-0333","Holder 2331","REVOKED"]', id="json"),
        pytest.param(json.dumps({"rows": [{**each, "note": "a, b"} for each in records()]}), '  ["LIC-0333","Holder 2331","REVOKED"]', id="json with commas"),
        pytest.param(f"<all>{XML}</all>", "<lic><id>LIC-0333</id><holder>Holder 2331</holder><state>REVOKED</state></lic>", id="xml on one line"),
        pytest.param(XML.replace("><", ">\n<"), "<state>REVOKED</state>", id="xml"),
        pytest.param("id,sum,unit\n" + "\n".join(f"LIC-{n:04},{'-' * (n == 333)}{n + 5}.10,EUR" for n in range(500)), "LIC-0333,-338.10,EUR", id="sign"),
        pytest.param(json.dumps([{"kind": "drop", "of": "all"} if n == 222 else {"kind": "push", "id": n * 7919, "to": NAMES[n % 59]} if n % 2 else {"kind": "star", "by": NAMES[n % 60], "at": n} for n in range(500)]), ' {"kind":"drop","of":"all"}', id="objects of several kinds"),
        pytest.param("at,id,took\n" + "\n".join(f"10:{n // 60 % 60:02}:{n % 60:02},s{n % 4},{913 if n == 777 else 20}.{n * 7919 % 1000:03}" for n in range(1200)), "10:12:57,s1,913.063", id="size"),
        pytest.param("\n".join(f"{a} is held by {b} and {c} since 20{n % 30:02}" for n, (a, b, c) in enumerate(CELLS)), "LIC-0333 is held by Holder 2331 and REVOKED since 2003", id="words"),
    ],
)  # fmt: skip
def test_a_row_in_another_state_than_nearly_all_stays(text: str, line: str) -> None:
    assert line in kept(text)
    assert len(form(text)) < len(text) / 3


def test_rows_that_leave_are_named_by_plain_words() -> None:
    text = "id,holder,state\n" + "\n".join(map(",".join, CELLS))
    notes = re.findall(r"\[… \d+ lines; ([^]]+)\]", form(text))
    assert len(notes) >= 1
    assert set(" ".join(notes).split()) <= {row[0] for row in CELLS} | {"…"}
    text = "\n".join(f"   {name * 3:12} Does what {name} is for, and says it at some length here" for name in NAMES)
    assert re.search(r"lines; (\w+ )+", condensed(text, 1200))


SERVICES = "\n".join(
    f"  svc{n}:\n    image: registry/svc{n}:1.{n}\n    replicas: {3 if n == 21 else 2}\n    environment:\n      LEVEL: {'debug' if n == 33 else 'info'}"
    for n in range(60)
)


@pytest.mark.parametrize(
    ("text", "stays"),
    [
        pytest.param(f"version: 3\nservices:\n{SERVICES}", ["services:", "  svc21:", "    replicas: 3", "  svc33:", "    environment:", "      LEVEL: debug"], id="yaml"),
        pytest.param("\n".join(f"[svc{n}]\nimage = 'svc:{n}'\nlevel = 'info'\nport = 80\nreplicas = {3 if n == 201 else 2}\n" for n in range(400)), ["[svc201]", "replicas = 3"], id="flat toml"),
        pytest.param("\n".join(f"## Part {n}\n\n|node|state|\n|---|---|\n|a{n}|ready|\n|b{n}|ready|\n|c{n}|{'lost' if n == 201 else 'ready'}|\n" for n in range(400)), ["## Part 201", "|c201|lost|"], id="markdown"),
        pytest.param("\n".join(f"obj{n}.o: obj{n}.c\n\tgcc -{'O0' if n == 21 else 'O2'} -c obj{n}.c" for n in range(90)), ["obj21.o: obj21.c", "\tgcc -O0 -c obj21.c"], id="makefile"),
        pytest.param("srv/\n" + "\n".join(f"├── app{n}/\n│   ├── conf/\n│   │   └── {'odd' if n == 133 else 'main'}.conf\n│   └── bin/\n│       └── run" for n in range(200)), ["srv/", "├── app133/", "│   ├── conf/", "│   │   └── odd.conf"], id="tree"),
        pytest.param(json.dumps({f"s{n}": [{"replicas": 3 if n == 21 else 2, "image": "word " * 40}] for n in range(90)}), [' "s21":[', '   "replicas":3'], id="json"),
    ],
)  # fmt: skip
def test_a_line_that_stays_brings_its_parents(text: str, stays: list[str]) -> None:
    lines = kept(text)
    assert [line for line in stays if line not in lines] == []
    rest = iter(lines)
    assert all(line in rest for line in stays), "in this order"


@pytest.mark.parametrize(
    "text", [f"services:\n{SERVICES}", "\n".join(f"{' ' * (n % 7)}key{n}: {n}" for n in range(500))]
)
def test_each_line_stands_below_its_own_parents(text: str) -> None:
    def parents(lines: list[str]) -> dict[str, str]:
        found, above = {}, list[str]()
        for line in lines:
            depth = len(line) - len(line.lstrip())
            above = [each for each in above if len(each) - len(each.lstrip()) < depth]
            found[line] = above[-1] if above else ""
            above.append(line)
        return found

    whole = parents(
        [f"{n} {line}"[2:] for n, line in enumerate(text.split("\n")) if "replicas" not in line and ":" in line]
    )
    unique = {line for line in whole if text.count(f"{line}\n") == 1}
    assert {line: above for line, above in parents(kept(text)).items() if line in unique} == {
        line: whole[line] for line in kept(text) if line in unique
    }


@pytest.mark.parametrize(
    ("each", "odd", "name"),
    [
        ("kind: App\nmetadata:\n  name: web-{n}\nspec:\n  replicas: {odd}\n  image: registry.test/app:{n}\n---", "replicas: 3", "name: web-121"),
        ("- kind: App\n  metadata:\n    name: web-{n}\n  spec:\n    replicas: {odd}\n    level: info", "replicas: 3", "name: web-121"),
        ("server {{\n    server_name web-{n};\n    location / {{\n        timeout {odd}s;\n    }}\n}}", "timeout 3s", "server_name web-121"),
        ("-[ RECORD {n} ]\nname  | web-{n}\nstate | {odd}\nlevel | info", "state | 3", "name  | web-121"),
        ("commit 77{n}\nAuthor: Ann {odd}\n\n    Change {n} of the service", "Ann 3", "commit 77121"),
        ("- web-{n}\n  - image registry.test/app\n  - replicas {odd}\n  - level info", "replicas 3", "- web-121"),
    ],
    ids=["documents", "a list", "blocks", "psql", "paragraphs", "bullets"],
)  # fmt: skip
def test_a_rare_line_brings_the_name_of_its_record(each: str, odd: str, name: str) -> None:
    text = "\n".join(each.format(n=n, odd=3 if n == 121 else 1) for n in range(240))
    lines = form(text).split("\n")
    (at,) = [place for place, line in enumerate(lines) if odd in line]
    names = [line for line in lines[:at] if re.search(r"web-\d+|commit 77\d+", line)]
    assert name in names[-1]


def test_hits_of_a_search_stay_as_they_are_or_are_named() -> None:
    hits = [
        f"src/mod{n % 7}/file_{n:03}.py:{n * 3 + 10}:    result = compute_total(order_{n}, tax=rates[{n}])  # TODO look again"
        for n in range(150)
    ]
    text = "\n".join(hits)

    assert set(kept(text)) <= set(hits)
    notes = "; ".join(re.findall(r"\[… \d+ lines; ([^]]+)\]", form(text))).split("; ")
    named = {
        f"{folder}/{file}" for folder, _, files in (each.partition(": ") for each in notes) for file in files.split()
    }
    assert named == {hit.split(":    ")[0] for hit in hits if hit not in kept(text)}


@pytest.mark.parametrize(
    "hit",
    [
        "main:src/mod{m}/file_{n}.py:{n}:    result = compute_total(order_{n}, tax=rates[{n}])  # TODO look again",
        "src\\mod{m}\\file_{n}.py:{n}:5: error: the type of the argument {n} is not the one that is expected here",
        "src/mod{m}/file_{n}.ts({n},17): error TS2304: Cannot find name 'computeTotal', nor anything like it, here.",
        "/home/ann/work/shop/backend/src/mod{m}/a_very_long_name_of_a_package/and_of_another/file_{n}.py",
        "error: cannot find `total` in this scope, nor in any other\n  --> src/mod{m}/file_{n}.rs:{n}:9\n   |\n{n} | x\n   | ^",
        "src/mod{m}/file_{n}.py-9-    before\nsrc/mod{m}/file_{n}.py:{n}:    result = compute_total(order_{n})\n--",
        "FAILED tests/mod{m}/file_{n}.py::test_total_of_order - AssertionError: assert Decimal('{n}.00') == 0, of {n}",
        "services/billing/internal/handlers/mod{n}/file_{n}.go:{n}:\treturn errors.New('total') // nothing else is here",
        "src/mod{m}/file_{n}.php:    $result = compute_total($order_{n}, $rates[{n}]); // look at it once more",
        " src/mod{m}/file_{n}.php | {n} ++++++++++++----",
        " src/mod{m}/a_folder_with_a_long_name/and_one_more/file_{n}.py | {n} ++++++++++++++++++++++++++++++++-----",
        'Traceback (most recent call last):\n  File "/srv/mod{m}/file_{n}.py", line {n}, in main\n    total({n})\nKeyError: {n}',
        "My Work/mod {m}/file_{n}.py:{n}:    result = compute_total(order_{n}, tax=rates[{n}])  # TODO look again",
        "D:\\My Work\\mod {m}\\file_{n}.cs:{n}:    var result = ComputeTotal(order{n}, rates[{n}]); // TODO look again",
    ],
    ids=[
        "git grep",
        "Windows",
        "tsc",
        "file names",
        "rustc",
        "context",
        "pytest",
        "a folder each",
        "no numbers",
        "short diff",
        "diff",
        "traceback",
        "blanks",
        "Windows and blanks",
    ],
)
def test_files_of_all_hits_are_named_in_whatever_form(hit: str) -> None:
    text = "\n".join(hit.format(m=n % 5, n=n + 100) for n in range(150))
    short = form(text)
    assert short != text
    assert not {f"file_{n + 100}" for n in range(150)} - {*re.findall(r"file_\d+", short)}


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ("{size}\t./var/lib/app {m}/data/part-{n}", "app {m}/data/part-{n}"),
        ("{size}  /var/lib/app{m}/data/part-{n}", "app{m}/data/part-{n}"),
        ("web-7d9f-{n}   1/1     Running   {m}          5d", "web-7d9f-{n}"),
        ("compute_{n}      function   {size} src/mod{m}/file.py def compute_{n}(order):", "compute_{n}"),
        ("ii  lib{n}-dev:amd64      {m}.{n}-1     amd64   library number {n} and its headers", "lib{n}-dev:amd64"),
    ],
    ids=["du", "md5sum", "kubectl", "ctags", "dpkg"],
)
def test_rows_are_named_by_what_they_are_called_rather_than_by_a_count(row: str, name: str) -> None:
    rows = [row.format(n=n + 100, m=n % 5, size=n * 7919 % 90001) for n in range(400)]
    notes = re.findall(r"\[… \d+ lines; (.*?)(?: …)?\]", condensed("\n".join(rows), 2000))
    assert notes
    names = {name.format(n=n + 100, m=n % 5).rpartition("/")[2] for n in range(400)}
    assert {re.sub(r".*[/ ]", "", note) for note in notes} <= names, "the last name of each note is whole"


@pytest.mark.parametrize(
    ("row", "note"),
    [
        (" {n:3} | Customer {n:6} | 2{n:03}-01-02", r"\[… \d+ lines\]"),
        ('["running","/app-{x}",true,"an image of this app"]', r"\[… \d+ lines; /: app-\w+ .*\]"),
    ],
    ids=["rows with numbers", "root"],
)
def test_names_of_rows_say_no_more_than_the_rows(row: str, note: str) -> None:
    text = "\n".join(row.format(n=n, x=NAMES[n % 60] * 2 + str(n)) for n in range(300))
    notes = [line.strip() for line in form(text).split("\n") if line.strip().startswith("[… ")]
    assert re.fullmatch(note, notes[0])
    assert not any(": …]" in each for each in notes), "a folder without a file"


def test_gap_within_long_lines_hides_no_end_of_a_line() -> None:
    row = "{n} " + "; ".join(f"part {{n}}-{k} of a long line." for k in range(60))
    shown = condensed("\n".join(row.format(n=n) for n in range(30)), 4000)
    for line in shown.split("\n"):
        numbers = set(re.findall(r"part (\d+)-", line))
        assert len(numbers) <= 1, "pieces of two lines stand on one"
        assert not re.search(r"\S\[… \d+ lines?\]|\[… \d+ lines?\] *\S", line)


def test_frames_of_a_trace_leave_its_exceptions_room_and_times_are_no_hits() -> None:
    frames = "\n".join(f"   at Shop.Mod{n}.Run(Order o) in C:\\src\\My Shop\\Mod{n}.cs:line {n}" for n in range(40))
    text = "\n".join(f"fail: Shop[{n}]\n   System.Exception: no row {n}\n{frames}" for n in range(9))
    assert {f"   System.Exception: no row {n}" for n in range(9)} <= set(kept(text))
    lines = [
        f"2026-01-01T{n // 60:02}:{n % 60:02}:07 worker-{n % 7} has order {n * 37 % 911} of {n} now" for n in range(400)
    ]
    assert sum(map(len, kept("\n".join(lines)))) > 1500


def test_of_more_hits_than_there_is_room_for_as_many_are_named_as_fit() -> None:
    hits = [f"src/{'deep/' * 3}file.py:{n}:    total = sum_of_{n}(order, rates, currency)" for n in range(2000)]

    (named,) = re.findall(r"lines; src/deep/deep/deep: file\.py:([\d,]+) …\]", condensed("\n".join(hits), 1000))

    numbers = [int(each) for each in named.split(",")]
    assert len(numbers) > 30
    assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]


@pytest.mark.parametrize("sign", ["\t", "→", "|", ": "])
def test_code_with_numbered_lines_keeps_what_it_stands_under(sign: str) -> None:
    methods = "".join(
        f"    def {name}(self):\n        self.x = {n}\n        return {n}\n\n" for n, name in enumerate(NAMES)
    )
    code = f"class A:\n\n{methods}\n\nclass B(A):\n    pass\n\n\n{methods}"
    numbered = "\n".join(f"{n:6}{sign}{line}" for n, line in enumerate(code.split("\n"), 1))
    stays = {line.partition(sign)[2] for line in kept(numbered)}
    assert {"class A:", "class B(A):", "    def a(self):"} < stays
    assert "lines; " not in form(numbered), "the numbers around a gap tell those in it"


def test_a_markdown_text_keeps_its_headings_and_the_first_lines_of_paragraphs() -> None:
    text = "\n\n".join(
        f"## Part {n}\n\nPart {n} says this first.\n{'It goes on and on here. ' * 5}\n{'More of it. ' * 9}"
        for n in range(25)
    )
    lines = kept(text)
    assert all(f"## Part {n}" in lines for n in range(25))
    assert sum(line.endswith("says this first.") for line in lines) > 7


def test_a_page_keeps_its_content_and_loses_its_menus() -> None:
    menu = "".join(f"<li><a href='/wiki/P{n}'>Page {n}</a></li>" for n in range(200))
    said = "".join(f"<p>The rules of {1900 + n} let a number have {n} letters.</p>" for n in range(140))
    page = f"<html><body><nav><ul>{menu}</ul></nav><h1>Format</h1>{said}<footer>{menu}</footer></body></html>"
    lines = [line for line in form(page).split("\n") if line]
    assert lines[0].startswith("[… nav, ")
    assert lines[1:3] == ["# Format", "The rules of 1900 let a number have 0 letters."]
    assert "/wiki/" not in form(page)


def test_a_line_of_a_page_brings_its_heading() -> None:
    orders = "".join(
        f"<div><h3>Order {n}</h3><p>{n * 7919} coins</p><p>paid by {n % 9} users</p></div>" for n in range(400)
    )
    heading = ""
    for line in kept(f"<html><body><ul><li>x</li></ul><main><h1>Orders</h1>{orders}</main></body></html>"):
        heading = line if line.startswith("### ") else heading
        if line.endswith(" coins"):
            assert line == f"{int(heading.split()[-1]) * 7919} coins"


def test_headings_that_say_the_same_leave_room_for_those_that_name_something() -> None:
    lock = "\n".join(f'[[package]]\nname = "{NAMES[n % 60]}-{n}"\nsource = "registry"\n' for n in range(400))
    assert sum(line.startswith("name") for line in kept(lock)) >= kept(lock).count("[[package]]")
    hunks = "\n".join(f"@@ -{n},3 +{n},3 @@ def do_{n}():\n-    old = {n}\n+    new = {n}\n " for n in range(9))
    diff = "\n".join(f"diff --git a/{name}.py b/{name}.py\n{hunks}" for name in NAMES[:40])
    assert all(f"diff --git a/{name}.py b/{name}.py" in kept(diff) for name in NAMES[:40])
    parts = "\n\n".join(
        f"====\nPart {n}\n====\n\n" + "\n".join(f"{NAMES[k]} and so on" for k in range(20)) for n in range(25)
    )
    assert sum(line.startswith("Part ") for line in kept(parts)) > 12


TAGS = [f'const row{n} = (it) => <td className="c{n}">{{it.col{n} ?? 0}}</td> // column {n}' for n in range(40)]


@pytest.mark.parametrize(
    ("before", "is_page"),
    [
        ("import React from 'react'\n\n", False),
        ("<script setup>\nimport x from 'x'\n</script>\n", False),
        ("<?php\n", False),
        ("<html><body>\n", True),
        ("HTTP/1.1 200 OK\nContent-Type: text/html\n\n<!doctype html>\n<body>\n", True),
    ],
)
def test_code_with_tags_is_no_page(before: str, is_page: bool) -> None:
    text = before + "\n".join(TAGS)
    shown = [line for line in condensed(text, 600).splitlines() if not line.startswith("[…")]
    assert any("<td" in line for line in shown) is not is_page
    assert set(shown) <= {*text.splitlines()} or is_page


NOISE = "\n".join(f"tests/test_batch.py::test_{name} PASSED [{n}%]" for n, name in enumerate(NAMES * 3))
PYTEST = f"{NOISE}\nE       KeyError: 'vat_id'\ntests/test_batch.py:41: KeyError\n1 failed, 60 passed in 3.21s\n"
FRAMES = "\n".join(f"\tat com.example.{name}.Service.run(Service.java:{n})" for n, name in enumerate(NAMES * 2))
JAVA = f'Exception in thread "main" java.lang.IllegalStateException: no key for plan 7\n{FRAMES}\nCaused by: java.io.IOException: pool is empty\n{FRAMES}'
GCC = "\n".join(f"gcc -O2 -Wall -Iinclude -c src/{name}.c -o build/{name}.o" for name in NAMES)
GO = "\n".join(
    f"=== RUN   Test_{name}\n    store_test.go:118:\n        \t    want: 42\n        \t    got: 41\n--- FAIL: Test_{name} (0.03s)"
    if n == 99
    else f"=== RUN   Test_{name}\n--- PASS: Test_{name} (0.00s)"
    for n, name in enumerate(NAMES * 3)
)
MAKE = f"{GCC}\nsrc/pay.c:88:14: error: too few arguments to 'charge'\n{GCC}\nmake: Leaving directory '/srv/pay'"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        pytest.param(PYTEST, ["E       KeyError: 'vat_id'", "1 failed, 60 passed in 3.21s"], id="tests"),
        pytest.param(GO, GO.splitlines()[199:203], id="what a test compared"),
        pytest.param(JAVA, [JAVA.splitlines()[0], "Caused by: java.io.IOException: pool is empty"], id="a trace"),
        pytest.param(MAKE, [MAKE.splitlines()[60], "make: Leaving directory '/srv/pay'"], id="a build"),
    ],
)
def test_what_went_wrong_and_the_end_stay(text: str, lines: list[str]) -> None:
    assert set(lines) <= set(kept(text))
    assert len(form(text)) < len(text) / 2.5


SCRIPTS = {
    "latin": ("worker {n} has done batch {n}", "the disk of this worker is full"),
    "cyrillic": ("рабочий {n} обработал пакет {n}", "диск этого узла переполнен"),
    "arabic": ("العامل {n} أنهى الدفعة {n}", "القرص ممتلئ تماما هنا"),
    "devanagari": ("कार्यकर्ता {n} ने बैच {n} पूरा किया", "डिस्क पूरी भर गई है"),
    "thai": ("คนงาน {n} ทำชุด {n} เสร็จแล้ว", "ดิสก์เต็มแล้วที่นี่"),
    "han": ("任务{n}已经完成批次{n}", "磁盘空间已经用尽"),
    "hangul": ("작업 {n} 이 배치 {n} 를 끝냈습니다", "디스크가 가득 찼습니다"),
}


@pytest.mark.parametrize(("usual", "rare"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_message_unlike_the_others_stays_in_any_script(usual: str, rare: str) -> None:
    lines = [f"2026-03-01 10:{n // 60:02}:{n % 60:02} {usual.format(n=n)}" for n in range(600)]
    lines[411] = f"2026-03-01 10:06:51 {rare}"
    text = "\n".join(lines)
    assert lines[411] in kept(text)
    assert set(kept(text)) <= set(lines)


@pytest.mark.parametrize("name", ["報告書_最終版_2026年3月.xlsx", "отчёт_за_март.pdf", "تقرير_مارس.docx"])
def test_names_of_files_are_not_torn(name: str) -> None:
    stem, _, ending = name.partition(".")
    text = "\n".join(f"-rw-r--r-- 1 ana ana {n * 17} Mar 3 10:00 {stem}_{n}.{ending}" for n in range(300))
    shown = re.findall(rf"{stem}[^\s\]]*", form(text))
    assert set(shown) <= {f"{stem}_{n}.{ending}" for n in range(300)}


DIGITS = f"{'9' * 5000}|\n" * 9


@pytest.mark.parametrize("room", [200, 500, 1000, 4000])
@pytest.mark.parametrize(
    "text",
    [SERVICES, MAKE, json.dumps(records()), XML, "word " * 9000, "x" * 40_000, "漢字" * 9000, PYTEST, DIGITS],
    ids=range(9),
)
def test_a_text_takes_at_most_the_room_that_it_gets(text: str, room: int) -> None:
    assert 0 < len(condensed(text, room)) <= room


def test_what_has_room_stays_whole_and_no_mere_sign_begins_a_paragraph() -> None:
    assert condensed(SERVICES, len(SERVICES)) == SERVICES
    assert short_form("a line\n" * 90) is None or len(lay_out("a line\n" * 90)) < 5
    text = "\n".join(f" the word {NAMES[n]} of part {n}, as it was\n\n-\n-the sign of {NAMES[n]}" for n in range(60))
    assert "]\n-\n[… " not in form(text)


def test_a_line_of_a_record_brings_the_line_that_the_record_begins_with() -> None:
    log = "\n\n".join(
        f"commit {n * 7919:040x}\nAuthor: A B <ab@example.org>\nDate:   Mon Nov 30 15:{n:02}:20 2026 +0000\n\n"
        f"    Change number {n} and say at some length why it was needed, so that it takes a line"
        for n in range(60)
    )
    lines = kept(log)
    for place, line in enumerate(lines):
        if line.startswith("Date:"):
            before = next(each for each in reversed(lines[:place]) if not each.startswith(("[…", "Author:")))
            assert before.startswith("commit ")


def test_a_line_of_a_diff_stands_below_its_file_and_its_place_in_it() -> None:
    hunk = "@@ -{0},3 +{0},3 @@ def name_{0}():\n \n-    return old_{0}(file_{1})\n+    return new_{0}(file_{1})\n "
    diff = "\n".join(
        f"diff --git a/src/file_{n}.py b/src/file_{n}.py\nindex 81f0{n:04} 100644\n--- a/src/file_{n}.py\n"
        f"+++ b/src/file_{n}.py\n" + "\n".join(hunk.format(at, n) for at in (100, 200, 300))
        for n in range(60)
    )
    file = place = ""
    for line in kept(diff):
        if line.startswith("diff"):
            file = line.rpartition("_")[2].removesuffix(".py")
        place = line.split(",")[0][4:] if line.startswith("@@") else place
        if line.startswith(("-    ", "+    ")):
            assert f"_{place}(file_{file})" in line


def test_a_count_of_repeated_lines_stands_below_the_line_that_it_counts() -> None:
    log = "\n".join(
        "\n".join([f"10:{n:02} job {n * 977} begins in region {n % 7}", *["retrying the connection to the store"] * n])
        for n in range(3, 59)
    )
    lines = form(rows(log).text).split("\n")
    noted = [place for place, line in enumerate(lines) if line.startswith("[… the same ")]
    assert noted
    assert {lines[place - 1] for place in noted} == {"retrying the connection to the store"}


def test_of_encoded_lines_one_piece_stays_and_other_lines_come_first() -> None:
    chance = Random(5)
    data = b64encode(chance.randbytes(9000)).decode()
    key = "\n".join(data[at : at + 64] for at in range(0, len(data), 64))
    text = "\n".join([key, *(f"server{n}: {n * 7919}" for n in range(40)), key])
    lines = form(text).split("\n")
    assert {f"server{n}: {n * 7919}" for n in range(40)} <= {*lines}
    assert sum(line.startswith("[… ") for line in lines) <= 3
    assert not any("; " in line for line in lines)
    assert not any(line in form(f"name: x.png\n{key}\nsize: 9000") for line in key.split("\n")[:-2])
