"""The report of a replay as one page: no script, and nothing from another host."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from proxy.server.replay.report import Rows, events, figures, notes, number, source_table, step_table
from proxy.text import counted

_HEIGHT, _BAR = 100, 10
_OPEN = 3


def render_page(report: Mapping[str, Any], title: str) -> str:
    """Return the report as a page of HTML."""
    template = files("proxy").joinpath("data/replay.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), body="\n".join(_body(report, title)))


def _body(report: Mapping[str, Any], title: str) -> Iterator[str]:
    total, against = report["total"], report["against"]
    yield f"<h1>{escape(title)}</h1>"
    compared = f", compared with <b>{escape(against)}</b>" if against else ""
    yield (
        f"<p>Chain <b>{escape(report['chain'])}</b>{compared}: {counted(total['conversations'], 'conversation')}, "
        f"{counted(total['requests'], 'request')}. Nothing was sent.</p>"
    )
    yield from (f'<p class="badge">{escape(note)}</p>' for note in notes(total))
    cards = (
        f'<div><b class="{each.grade}">{escape(each.value)}</b><span>{escape(each.about)}</span></div>'
        for each in figures(total)
    )
    yield f'<div class="cards">{"".join(cards)}</div>'
    yield "<h2>Cost of the prompts, against the client's own requests</h2>"
    yield from _table(source_table(report))
    yield (
        '<p class="dim">Below 1 the chain saves money. <i>own</i> is what the model\'s own provider charges for its '
        "cache; the others are the rules of other providers. Survival is the share of the values that answers needed "
        "and that can be seen in what is sent.</p>"
    )
    if total["steps"]:
        yield "<h2>Steps</h2>"
        yield from _table(step_table(total["steps"]))
    yield "<h2>Conversations</h2>"
    yield (
        '<p class="key">Each bar is a request:<i style="background:var(--cached)"></i>read from the cache'
        '<i style="background:var(--fresh)"></i>at full price<i style="background:var(--was)"></i>the line: as the '
        'client sent it<i style="background:var(--bad)"></i>a prefix break</p>'
    )
    for place, conversation in enumerate(report["conversations"]):
        yield from _conversation(conversation, is_open=place < _OPEN)


def _conversation(conversation: Mapping[str, Any], *, is_open: bool) -> Iterator[str]:
    turns: Sequence[Mapping[str, Any]] = conversation["turns"]
    ours, theirs = (sum(turn[form].get("own", 0.0) for turn in turns) for form in ("cost", "unchanged"))
    about = f"{len(turns)} requests, cost {number(ours / theirs if theirs else None)}"
    yield f"<details{' open' if is_open else ''}><summary><b>{escape(conversation['name'])}</b>{about}</summary>"
    yield _chart(turns)
    told = [(turn["number"], events(turn)) for turn in turns]
    rows = [[str(place), "\n".join(map(": ".join, found.items()))] for place, found in told if found]
    if rows:
        yield from _table([["request", "what to know"], *rows])
    yield "</details>"


def _chart(turns: Sequence[Mapping[str, Any]]) -> str:
    most = max([1, *(max(sum(turn["before"].values()), sum(turn["after"].values())) for turn in turns)])
    bars, line = list[str](), list[str]()
    for place, turn in enumerate(turns):
        before, after = (sum(turn[when].values()) for when in ("before", "after"))
        offset, cached = place * _BAR, turn["cached"]
        top, middle = (_HEIGHT * (1 - size / most) for size in (after, cached))
        title = f"request {turn['number']}: {before:,} tokens, {after:,} sent, {cached:,} of them read from the cache"
        if turn["broken"]:
            title += f"; {turn['broken']['lost']:,} tokens read anew, by {turn['broken']['step']}"
        mark = f'<rect class="mark" x="{offset + 1}" y="0" width="{_BAR - 2}" height="3"/>' if turn["broken"] else ""
        place_of = f'x="{offset + 1}" width="{_BAR - 2}"'
        bars.append(
            f"<g><title>{escape(title)}</title>"
            f'<rect class="fresh" {place_of} y="{top:.2f}" height="{max(0.0, middle - top):.2f}"/>'
            f'<rect class="cached" {place_of} y="{middle:.2f}" height="{_HEIGHT - middle:.2f}"/>{mark}</g>'
        )
        height = _HEIGHT * (1 - before / most)
        line.append(f"{offset},{height:.2f} {offset + _BAR},{height:.2f}")
    width = max(_BAR * len(turns), 12 * _BAR)
    label = f"Tokens of {len(turns)} requests, at most {most:,}"
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'{"".join(bars)}<polyline class="was" points="{" ".join(line)}"/></svg>'
        f'<p class="key">at most {most:,} tokens</p>'
    )


def _table(rows: Rows) -> Iterator[str]:
    head, *body = rows
    yield '<div class="wide"><table><tr>' + "".join(f"<th>{escape(each)}</th>" for each in head) + "</tr>"
    for row in body:
        cells = [f"<td{_class(cell)}>{escape(cell)}</td>" for cell in row]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"


def _class(cell: str) -> str:
    return ' class="text"' if any(map(str.isalpha, cell)) else ""
