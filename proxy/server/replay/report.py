"""The report of a replay: its figures as JSON values, as text, and as a page without a script."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, NamedTuple

from proxy.server.replay.score import OTHERS, OWN, Replayed, Turn
from proxy.text import counted

RULES = (OWN, *OTHERS)

_MET = 0.05

_MOST = 5
"""Requests that the text shows of those with a prefix break, with lost values, and so on."""

Rows = Sequence[Sequence[str]]
"""A table; its first row is the head."""


def build_report(
    replayed: Sequence[Replayed], against: Sequence[Replayed] | None = None, *, file: str = ""
) -> dict[str, Any]:
    """Return a replay as JSON values: totals, the same by source, and each turn. `file` is the other chain's."""
    report = {
        "chain": _chains(replayed),
        "against": None if against is None else f"{_chains(against)}{f' of {file}' if file else ''}",
        "total": totals(replayed, against),
        "sources": {
            source: totals(_of(replayed, source), None if against is None else _of(against, source))
            for source in dict.fromkeys(each.conversation.source for each in replayed)
        },
        "conversations": [
            {"name": each.conversation.name, "source": each.conversation.source, "turns": each.turns}
            for each in replayed
        ],
    }
    if against is not None:
        report["against_total"] = totals(against)
    return report


def _chains(replayed: Iterable[Replayed]) -> str:
    return ", ".join(dict.fromkeys(turn["chain"] for each in replayed for turn in each.turns))


def _of(replayed: Iterable[Replayed], source: str) -> list[Replayed]:
    return [each for each in replayed if each.conversation.source == source]


def totals(replayed: Sequence[Replayed], against: Sequence[Replayed] | None = None) -> dict[str, Any]:
    """Return the figures of some conversations together; `against` those of another chain, also the cost."""
    turns = [turn for each in replayed for turn in each.turns]
    sent = [turn for turn in turns if turn["refused"] is None]
    sizes = [(sum(turn["before"].values()), sum(turn["after"].values())) for turn in sent]
    before, after = (sum(size[place] for size in sizes) for place in (0, 1))
    needed, visible, retrievable = (
        sum(turn["values"][name] for turn in turns) for name in ("needed", "visible", "retrievable")
    )
    ends = [each.turns[-1]["messages"] for each in replayed if each.turns]
    breaks = [turn["broken"]["lost"] for turn in sent if turn["broken"] is not None]
    priced = [turn for turn in sent if turn["usd"] is not None]
    times = sorted(turn["milliseconds"] for turn in turns)
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for turn in turns:
        for step in turn["steps"]:
            steps[step["policy"]].append(step)
    return {
        "conversations": len(replayed),
        "requests": len(turns),
        "refused": len(turns) - len(sent),
        "too_large": {
            "unchanged": sum(sum(turn["before"].values()) > turn["usable"] for turn in turns),
            "sent": sum(size[1] > turn["usable"] for turn, size in zip(sent, sizes, strict=True)),
        },
        "tokens": {"before": before, "after": after, "ratio": _ratio(after, before)},
        "cost": {rule: _ratio(*_costs(turns, rule)) for rule in RULES},
        "usd": sum(turn["usd"] for turn in priced) if priced else None,
        "usd_unchanged": sum(turn["usd_unchanged"] for turn in priced) if priced else None,
        "cached": {
            "tokens": sum(turn["cached"] for turn in sent),
            "share": _ratio(sum(turn["cached"] for turn in sent), after),
            "share_unchanged": _ratio(sum(turn["cached_unchanged"] for turn in sent), before),
        },
        "breaks": {"count": len(breaks), "tokens": sum(breaks)},
        "values": {
            "needed": needed,
            "visible": visible,
            "retrievable": retrievable,
            "lost": needed - visible - retrievable,
            "survival": _ratio(visible, needed),
        },
        "messages": {name: sum(end[name] for end in ends) for name in ("all", "removed", "shortened", "gone")},
        "recalled": {
            "tokens": sum(turn["recalled"] for turn in turns),
            "turns": sum(turn["recalled"] > 0 for turn in turns),
        },
        "left_out": sum(len(turn["left_out"]) for turn in turns),
        "internal_calls": sum(max((turn["internal_calls"] for turn in each.turns), default=0) for each in replayed),
        "violations": {
            "requests": sum(bool(turn["violations"]) for turn in turns),
            "rules": dict(Counter(rule for turn in turns for rule in turn["violations"])),
        },
        "failed_steps": sum(step["verdict"] == "fail" for some in steps.values() for step in some),
        "milliseconds": {"p50": _percentile(times, 0.5), "p99": _percentile(times, 0.99)},
        "steps": {name: _step(some) for name, some in steps.items()},
        "calibration": _calibration([turn["reported"] for turn in turns if turn["reported"] is not None]),
        **({} if against is None else {"cost_against": _cost_against(turns, against)}),
    }


def _cost_against(turns: Sequence[Turn], against: Sequence[Replayed]) -> dict[str, float | None]:
    others = [turn for each in against for turn in each.turns]
    return {rule: _ratio(_costs(turns, rule)[0], _costs(others, rule)[0]) for rule in RULES}


def _costs(turns: Sequence[Mapping[str, Any]], rule: str) -> tuple[float, float]:
    """Return what requests cost by a rule, and what the client's would have."""
    ours, theirs = (sum(turn[form].get(rule, 0.0) for turn in turns) for form in ("cost", "unchanged"))
    return ours, theirs


def _calibration(known: Sequence[Mapping[str, int]]) -> dict[str, Any] | None:
    """Return the fit of our predictions to the cache reads that the upstream reported; None without reports."""
    expected, reported = sum(each["expected"] for each in known), sum(each["cached"] for each in known)
    if not (expected or reported):  # that both say nothing proves nothing
        return None
    counted, tokens = sum(each["prompt"] for each in known), sum(each["tokens"] for each in known)
    # however each side counts
    off = [each["cached"] / max(1, each["tokens"]) - each["expected"] / max(1, each["prompt"]) for each in known]
    return {
        "turns": len(known),
        "met": sum(abs(each) <= _MET for each in off),
        "expected": expected,
        "reported": reported,
        "share_expected": _ratio(expected, counted),
        "share_reported": _ratio(reported, tokens),
        "prompt_off": _ratio(counted - tokens, tokens),
    }


def _step(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    enforced = [step for step in runs if not step["observed"]]
    return {
        **Counter(step["verdict"] for step in runs),
        "tokens": sum((step["tokens_after"] or 0) - (step["tokens_before"] or 0) for step in enforced),
        "ms_p50": _percentile(sorted(step["milliseconds"] for step in runs), 0.5),
    }


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


class Figure(NamedTuple):
    """A figure of a report, and what it says."""

    value: str
    about: str
    grade: str = ""
    """`good`, `bad`, or worth a look (`warn`)."""


def figures(total: Mapping[str, Any]) -> list[Figure]:
    """Return the figures of all conversations that a reader has to know."""
    tokens, values, breaks, cost = total["tokens"], total["values"], total["breaks"], total["cost"][OWN]
    usd = "" if total["usd"] is None else f" ${total['usd_unchanged']:.4f} → ${total['usd']:.4f}"
    against, times, large = total.get("cost_against", {}).get(OWN), total["milliseconds"], total["too_large"]
    messages, recalled = total["messages"], total["recalled"]
    return [
        Figure(number(cost), f"cost of the prompts{usd}", _grade(cost)),
        *([] if against is None else [Figure(number(against), "cost against the other chain", _grade(against))]),
        Figure(number(tokens["ratio"]), f"tokens: {tokens['before']:,} → {tokens['after']:,}", _grade(tokens["ratio"])),
        _count(breaks["count"], f"prefix breaks, {breaks['tokens']:,} tokens", "warn"),
        _count(values["lost"], f"of {values['needed']:,} needed values lost"),
        Figure(f"{values['retrievable']:,}", "needed values behind a handle"),
        Figure(
            f"{messages['removed']:,}",
            f"of {messages['all']:,} messages removed at the end, {messages['gone']:,} of them behind no handle; "
            f"{messages['shortened']:,} shortened",
        ),
        _count(total["violations"]["requests"], "requests that break a rule"),
        _count(total["refused"], "requests refused"),
        _count(large["sent"], f"too large for the window; {large['unchanged']:,} unchanged"),
        _count(total["failed_steps"], "failed steps"),
        Figure(f"{recalled['tokens']:,}", f"tokens recalled, {recalled['turns']:,} requests"),
        _count(total["left_out"], "calls of tools that were left out", "warn"),
        Figure(f"{times['p99'] or 0:.1f} ms", f"the chain, p99; p50 {times['p50'] or 0:.1f} ms"),
    ]


def notes(total: Mapping[str, Any]) -> list[str]:
    """Return notes on the trust in the costs, and on parts that a replay leaves out."""
    calibration, internal = total["calibration"], total["internal_calls"]
    if calibration is None:
        trust = "not calibrated: the files report no reads from the upstream's cache"
    else:
        expected, reported = calibration["share_expected"] or 0.0, calibration["share_reported"] or 0.0
        trust = (
            f"calibrated: {calibration['met']} of {calibration['turns']} cache reads predicted within 5 % of the "
            f"prompt; of all prompts {expected:.1%} predicted, {reported:.1%} reported"
        )
    unplayed = f"not played: {counted(internal, 'call')} of internal tools, so later prompts are shorter than they were"
    return [trust, *([unplayed] if internal else [])]


def source_table(report: Mapping[str, Any]) -> Rows:
    """Return the figures by source."""
    rows = [["source", "requests", "tokens", "sent", *(f"cost {rule}" for rule in RULES), "survival", "breaks"]]
    shown = {**(report["sources"] if len(report["sources"]) > 1 else {}), "all": report["total"]}
    if report["against"]:
        shown[f"all, chain {report['against']}"] = report["against_total"]
    for name, each in shown.items():
        costs, tokens = [number(each["cost"][rule]) for rule in RULES], each["tokens"]
        rest = [number(each["values"]["survival"]), f"{each['breaks']['count']:,}"]
        rows.append([name, f"{each['requests']:,}", f"{tokens['before']:,}", f"{tokens['after']:,}", *costs, *rest])
    return rows


def step_table(steps: Mapping[str, Mapping[str, Any]]) -> Rows:
    """Return what each step did."""
    rows = [["step", "rewrote", "kept", "skipped", "failed", "rejected", "tokens", "ms (p50)"]]
    for name, each in steps.items():
        counts = [f"{each.get(verdict, 0):,}" for verdict in ("rewrite", "keep", "skip", "fail", "reject")]
        rows.append([name, *counts, f"{each['tokens']:+,}", number(each["ms_p50"])])
    return rows


def events(turn: Mapping[str, Any]) -> dict[str, str]:
    """Return the noteworthy events of a request, by kind."""
    broken, retrievable, recalled = turn["broken"], turn["values"]["retrievable"], turn["recalled"]
    failed = (step for step in turn["steps"] if step["verdict"] == "fail")
    result = {
        "refused": turn["refused"],
        "prefix break": broken
        and f"from {_place(broken['message'])} on, {broken['lost']:,} tokens are read anew, by {broken['step']}",
        "values lost": ", ".join(turn["missing"]),
        "values behind a handle": str(retrievable or ""),
        "tools left out and called": ", ".join(turn["left_out"]),
        "rules broken": "; ".join(turn["violations"]),
        "recalled": f"{recalled:,} tokens" if recalled else "",
        "failed steps": "; ".join(f"{step['policy']}: {step['why']}" for step in failed),
    }
    return {kind: text for kind, text in result.items() if text}


def _place(message: int | None) -> str:
    return "the tools" if message is None else f"message {message}"


def render_text(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    total = report["total"]
    about = f"chain {report['chain']}" + (f" against {report['against']}" if report["against"] else "")
    lines = [
        f"{counted(total['conversations'], 'conversation')}, {counted(total['requests'], 'request')}; {about}",
        "",
        *_aligned(source_table(report)),
        "",
        "cost is that of the prompts against the client's own requests: below 1 the chain saves money",
        *notes(total),
        "",
        *(f"{figure.value:>12}  {figure.about}" for figure in figures(total)),
        "",
        *_first_events(report["conversations"]),
        "",
        *(_aligned(step_table(total["steps"])) if total["steps"] else []),
    ]
    return "\n".join(lines)


def _first_events(conversations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    known: Counter[str] = Counter()
    for conversation in conversations:
        for turn in conversation["turns"]:
            for kind, text in events(turn).items():
                known[kind] += 1
                if known[kind] <= _MOST:
                    yield f"{conversation['name']}, request {turn['number']}: {kind}: {text}"
    yield from (f"{count - _MOST:,} more of: {kind}" for kind, count in known.items() if count > _MOST)


def _aligned(rows: Rows) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def number(value: float | None) -> str:
    """Return a figure with three decimals, if there is one."""
    return "–" if value is None else f"{value:.3f}"


def _count(count: int, about: str, more: str = "bad") -> Figure:
    return Figure(f"{count:,}", about, more if count else "good")


def _grade(ratio: float | None) -> str:
    return "" if ratio is None else "good" if ratio < 1 else "bad" if ratio > 1 else ""


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
    ours, theirs = _costs(turns, OWN)
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
