"""The report of a replay as one page: no script, and nothing from another host."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from proxy.server.replay.report import RULES, badge
from proxy.text import counted

_HEIGHT, _BAR = 100, 10
_OPEN = 3
"""Conversations that are shown open."""

Row = Sequence[object]


def render_page(report: Mapping[str, Any], title: str) -> str:
    """The report as a page of HTML."""
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
    yield f'<p class="badge">{escape(badge(total["calibration"]))}</p>'
    yield from _cards(total)
    yield "<h2>Cost of the prompts, against the client's own requests</h2>"
    yield from _table(["source", "requests", "tokens", "sent", *RULES, "survival", "breaks"], _sources(report))
    yield (
        '<p class="dim">Below 1 the chain saves money. <i>own</i> is what the model\'s own provider charges for its '
        "cache; the others are the rules of other providers. Survival is the share of the values that answers needed "
        "and that can be seen in what is sent.</p>"
    )
    yield from _steps(total["steps"])
    yield "<h2>Conversations</h2>"
    yield (
        '<p class="key">Each bar is a request:<i style="background:var(--cached)"></i>read from the cache'
        '<i style="background:var(--fresh)"></i>at full price<i style="background:var(--was)"></i>the line: as the '
        'client sent it<i style="background:var(--bad)"></i>a prefix break</p>'
    )
    for place, conversation in enumerate(report["conversations"]):
        yield from _conversation(conversation, is_open=place < _OPEN)


def _cards(total: Mapping[str, Any]) -> Iterator[str]:
    tokens, values, breaks, cost = total["tokens"], total["values"], total["breaks"], total["cost"]["own"]
    usd = "" if total["usd"] is None else f"${total['usd_unchanged']:.4f} → ${total['usd']:.4f}"
    against, times = total.get("cost_against", {}).get("own"), total["milliseconds"]
    cards: list[tuple[str, str, str]] = [
        (_number(cost), f"cost of the prompts {usd}", _grade(cost)),
        *([(_number(against), "cost against the other chain", _grade(against))] if against is not None else []),
        (_number(tokens["ratio"]), f"tokens: {tokens['before']:,} → {tokens['after']:,}", _grade(tokens["ratio"])),
        (f"{breaks['count']:,}", f"prefix breaks, {breaks['tokens']:,} tokens", "warn" if breaks["count"] else "good"),
        (f"{values['lost']:,}", f"of {values['needed']:,} needed values lost", "bad" if values["lost"] else "good"),
        (f"{values['retrievable']:,}", "needed values behind a handle", ""),
        (f"{total['violations']['requests']:,}", "requests that break a rule", _alarm(total["violations"]["requests"])),
        (f"{total['refused']:,}", "requests refused", _alarm(total["refused"])),
        (
            f"{total['too_large']['sent']:,}",
            f"too large for the window; {total['too_large']['unchanged']:,} unchanged",
            _alarm(total["too_large"]["sent"]),
        ),
        (f"{total['failed_steps']:,}", "failed steps", _alarm(total["failed_steps"])),
        (f"{total['recalled']['tokens']:,}", f"tokens recalled, {total['recalled']['turns']:,} requests", ""),
        (f"{total['left_out']:,}", "calls of tools that were left out", "warn" if total["left_out"] else ""),
        (f"{times['p99'] or 0:.1f} ms", f"the chain, p99; p50 {times['p50'] or 0:.1f} ms", ""),
    ]
    shown = "".join(
        f'<div><b class="{grade}">{value}</b><span>{escape(told)}</span></div>' for value, told, grade in cards
    )
    yield f'<div class="cards">{shown}</div>'


def _sources(report: Mapping[str, Any]) -> Iterator[Row]:
    shown = {**(report["sources"] if len(report["sources"]) > 1 else {}), "all": report["total"]}
    if report["against"]:
        shown[f"all, chain {report['against']}"] = report["against_total"]
    for name, each in shown.items():
        costs = [_number(each["cost"][rule]) for rule in RULES]
        tokens = (f"{each['tokens']['before']:,}", f"{each['tokens']['after']:,}")
        survival = _number(each["values"]["survival"])
        yield (name, f"{each['requests']:,}", *tokens, *costs, survival, f"{each['breaks']['count']:,}")


def _steps(steps: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    verdicts = ("rewrite", "keep", "skip", "fail", "reject")
    rows = [
        (name, *(f"{each.get(verdict, 0):,}" for verdict in verdicts), f"{each['tokens']:+,}", _number(each["ms_p50"]))
        for name, each in steps.items()
    ]
    if rows:
        yield "<h2>Steps</h2>"
        yield from _table(["step", "rewrote", "kept", "skipped", "failed", "rejected", "tokens", "ms (p50)"], rows)


def _conversation(conversation: Mapping[str, Any], *, is_open: bool) -> Iterator[str]:
    turns: Sequence[Mapping[str, Any]] = conversation["turns"]
    ours, theirs = (sum(turn[form].get("own", 0.0) for turn in turns) for form in ("cost", "unchanged"))
    about = f"{len(turns)} requests, cost {_number(ours / theirs if theirs else None)}"
    yield f"<details{' open' if is_open else ''}><summary><b>{escape(conversation['name'])}</b>{about}</summary>"
    yield _chart(turns)
    rows = [(str(turn["number"]), "\n".join(_events(turn))) for turn in turns]
    if any(told for _, told in rows):
        yield from _table(["request", "what to know"], [row for row in rows if row[1]])
    yield "</details>"


def _chart(turns: Sequence[Mapping[str, Any]]) -> str:
    most = max([1, *(max(sum(turn["before"].values()), sum(turn["after"].values())) for turn in turns)])
    bars, line = list[str](), list[str]()
    for place, turn in enumerate(turns):
        before, after = (sum(turn[when].values()) for when in ("before", "after"))
        left, cached = place * _BAR, turn["cached"]
        top, middle = (_HEIGHT * (1 - size / most) for size in (after, cached))
        told = f"request {turn['number']}: {before:,} tokens, {after:,} sent, {cached:,} of them read from the cache"
        if turn["broken"]:
            told += f"; {turn['broken']['lost']:,} tokens read anew, by {turn['broken']['step'] or 'no single step'}"
        mark = f'<rect class="mark" x="{left + 1}" y="0" width="{_BAR - 2}" height="3"/>' if turn["broken"] else ""
        place_of = f'x="{left + 1}" width="{_BAR - 2}"'
        bars.append(
            f"<g><title>{escape(told)}</title>"
            f'<rect class="fresh" {place_of} y="{top:.2f}" height="{max(0.0, middle - top):.2f}"/>'
            f'<rect class="cached" {place_of} y="{middle:.2f}" height="{_HEIGHT - middle:.2f}"/>{mark}</g>'
        )
        height = _HEIGHT * (1 - before / most)
        line.append(f"{left},{height:.2f} {left + _BAR},{height:.2f}")
    width = max(_BAR * len(turns), 12 * _BAR)
    label = f"Tokens of {len(turns)} requests, at most {most:,}"
    return (
        f'<svg viewBox="0 0 {width} {_HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'{"".join(bars)}<polyline class="was" points="{" ".join(line)}"/></svg>'
        f'<p class="key">at most {most:,} tokens</p>'
    )


def _events(turn: Mapping[str, Any]) -> Iterator[str]:
    """What of a turn a reader should know."""
    retrievable, recalled = turn["values"]["retrievable"], turn["recalled"]
    told = {
        "refused": turn["refused"],
        "prefix break": _broken(turn["broken"]),
        "values lost": ", ".join(turn["missing"]),
        "values behind a handle": str(retrievable or ""),
        "tools left out and called": ", ".join(turn["left_out"]),
        "rules broken": "; ".join(turn["violations"]),
        "recalled": f"{recalled:,} tokens" if recalled else "",
    }
    yield from (f"{what}: {text}" for what, text in told.items() if text)
    failed = (step for step in turn["steps"] if step["verdict"] == "fail")
    yield from (f"failed step: {step['policy']}: {step['why']}" for step in failed)


def _broken(broken: Mapping[str, Any] | None) -> str:
    if broken is None:
        return ""
    where = f"from byte {broken['at']:,} on, {broken['lost']:,} tokens, by {broken['step'] or 'no single step'}"
    return f"{where}\n    was {broken['before']}\n    is {broken['after']}"


def _table(head: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    yield '<div class="wide"><table><tr>' + "".join(f"<th>{escape(each)}</th>" for each in head) + "</tr>"
    for row in rows:
        cells = [f"<td{_class(cell)}>{escape(str(cell))}</td>" for cell in row]
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</table></div>"


def _class(cell: object) -> str:
    return ' class="text"' if isinstance(cell, str) and any(map(str.isalpha, cell)) else ""


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _grade(ratio: float | None) -> str:
    return "" if ratio is None else "good" if ratio < 1 else "bad" if ratio > 1 else ""


def _alarm(count: int) -> str:
    return "bad" if count else "good"
