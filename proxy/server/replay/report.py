"""The report of a replay: its figures as JSON values, as text, and as a page without a script."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import chain, repeat
from string import Template
from typing import Any

from proxy.server.replay.score import OTHERS, OWN, Replayed, Turn
from proxy.text import columns, counted, figure

_MET = 0.05

_MOST = 5
"""Requests that the text shows of those with a prefix break, with lost values, and so on."""

Rows = Sequence[Sequence[str]]
"""A table; its first row is the head."""


def build_report(*sides: Sequence[Replayed], file: str = "") -> dict[str, Any]:
    """Return a replay as JSON values: totals, the same by source, and each turn. `file` is the second chain's."""
    chain, *others = (", ".join(dict.fromkeys(turn["chain"] for turn in _turns(side))) for side in sides)
    sources = dict.fromkeys(each.conversation.source for each in sides[0])
    return {
        "chain": chain,
        "against": f"{others[0]}{f' of {file}' if file else ''}" if others else None,
        "total": totals(*sides),
        "sources": {
            source: totals(*([each for each in side if each.conversation.source == source] for side in sides))
            for source in sources
        },
        "conversations": [
            {"name": each.conversation.name, "source": each.conversation.source, "turns": each.turns}
            for each in sides[0]
        ],
        **({"against_total": totals(sides[1])} if others else {}),
    }


def _turns(replayed: Iterable[Replayed]) -> list[Turn]:
    return [turn for each in replayed for turn in each.turns]


def _size(turn: Turn, when: str) -> int:
    return sum(turn[when].values())


def totals(replayed: Sequence[Replayed], against: Sequence[Replayed] | None = None) -> dict[str, Any]:
    """Return the figures of some conversations together; `against` those of another chain, also the cost."""
    turns = _turns(replayed)
    sent = [turn for turn in turns if turn["refused"] is None]
    before, after = (sum(_size(turn, when) for turn in sent) for when in ("before", "after"))
    cached, cached_unchanged = (sum(turn[name] for turn in sent) for name in ("cached", "cached_unchanged"))
    priced = [turn for turn in sent if turn["usd"] is not None]
    values = {name: sum(turn["values"][name] for turn in turns) for name in ("needed", "visible", "retrievable")}
    lost = values["needed"] - values["visible"] - values["retrievable"]
    ends = [each.turns[-1]["messages"] for each in replayed if each.turns]
    breaks = [turn["broken"]["lost"] for turn in sent if turn["broken"] is not None]
    recalled = [turn["recalled"] for turn in turns if turn["recalled"]]
    times = sorted(turn["milliseconds"] for turn in turns)
    steps: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in (step for turn in turns for step in turn["steps"]):
        steps[step["policy"]].append(step)
    costs = {rule: _costs(turns, rule) for rule in (OWN, *OTHERS)}
    figures = {
        "conversations": len(replayed),
        "requests": len(turns),
        "refused": len(turns) - len(sent),
        "too_large": {
            "unchanged": sum(_size(turn, "before") > turn["usable"] for turn in turns),
            "sent": sum(_size(turn, "after") > turn["usable"] for turn in sent),
        },
        "tokens": {"before": before, "after": after, "ratio": _ratio(after, before)},
        "cost": {rule: _ratio(*both) for rule, both in costs.items()},
        **{name: sum(turn[name] for turn in priced) if priced else None for name in ("usd", "usd_unchanged")},
        "cached": {
            "tokens": cached,
            "share": _ratio(cached, after),
            "share_unchanged": _ratio(cached_unchanged, before),
        },
        "breaks": {"count": len(breaks), "tokens": sum(breaks)},
        "values": {**values, "lost": lost, "survival": _ratio(values["visible"], values["needed"])},
        "messages": {name: sum(end[name] for end in ends) for name in ("all", "removed", "shortened", "gone")},
        "recalled": {"tokens": sum(recalled), "turns": len(recalled)},
        "left_out": sum(len(turn["left_out"]) for turn in turns),
        "internal_calls": sum(max((turn["internal_calls"] for turn in each.turns), default=0) for each in replayed),
        "violations": {
            "requests": sum(bool(turn["violations"]) for turn in turns),
            "rules": dict(Counter(rule for turn in turns for rule in turn["violations"])),
        },
        "failed_steps": sum(step["verdict"] == "fail" for runs in steps.values() for step in runs),
        "milliseconds": {"p50": _percentile(times, 0.5), "p99": _percentile(times, 0.99)},
        "steps": {name: _step(runs) for name, runs in steps.items()},
        "calibration": _calibration([turn["reported"] for turn in turns if turn["reported"] is not None]),
    }
    if against is not None:
        others = _turns(against)
        figures["cost_against"] = {rule: _ratio(ours, _costs(others, rule)[0]) for rule, (ours, _) in costs.items()}
    return figures


def _costs(turns: Sequence[Turn], rule: str) -> tuple[float, float]:
    ours, theirs = (sum(turn[form].get(rule, 0.0) for turn in turns) for form in ("cost", "unchanged"))
    return ours, theirs


def _calibration(known: Sequence[Mapping[str, int]]) -> dict[str, Any] | None:
    """Return the fit of our predictions to the cache reads that the upstream reported; None without reports."""
    names = ("expected", "cached", "prompt", "tokens")
    expected, reported, counted, tokens = (sum(each[name] for each in known) for name in names)
    if not (expected or reported):  # that both say nothing proves nothing
        return None
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
        "tokens": sum((step["tokens_after"] or 0) - (step["tokens_before"] or 0) for step in enforced),
        "ms_p50": _percentile(sorted(step["milliseconds"] for step in runs), 0.5),
        **Counter(step["verdict"] for step in runs),
    }


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


def notes(report: Mapping[str, Any]) -> list[str]:
    """Return the size of a replay, and what a cost is."""
    total = report["total"]
    about = f"chain {report['chain']}" + (f" against {report['against']}" if report["against"] else "")
    size = f"{counted(total['conversations'], 'conversation')}, {counted(total['requests'], 'request')}; {about}"
    return [size, "cost is that of the prompts against the client's own requests: below 1 the chain saves money"]


def tables(report: Mapping[str, Any]) -> dict[str, Rows]:
    """Return the tables of a report by their titles: the figures by source, all of them, and what each step did."""
    total = report["total"]
    sources = {**(report["sources"] if len(report["sources"]) > 1 else {}), "all": total}
    if report["against"]:
        sources[f"all, chain {report['against']}"] = report["against_total"]
    figures = [(name, figure(value)) for name, value in total.items() if name != "steps"]
    return {
        "Sources": _table({name: _source(each) for name, each in sources.items()}),
        "Figures": [("figure", "value"), *figures],
        "Steps": _table(total["steps"]),
    }


def _source(total: Mapping[str, Any]) -> dict[str, Any]:
    costs = {f"cost {rule}": cost for rule, cost in total["cost"].items()}
    known = {"requests": total["requests"], **total["tokens"], **costs}
    return {**known, "survival": total["values"]["survival"], "breaks": total["breaks"]["count"]}


def _table(rows: Mapping[str, Mapping[str, Any]]) -> Rows:
    """Return a table with a column for each figure that a row has."""
    names = dict.fromkeys(name for each in rows.values() for name in each)
    return [["", *names], *([title, *(figure(each.get(name, 0)) for name in names)] for title, each in rows.items())]


def events(turn: Turn) -> dict[str, str]:
    """Return the noteworthy parts of a request's score."""
    names = ("refused", "broken", "missing", "left_out", "violations", "recalled")
    failed = {step["policy"]: step["why"] for step in turn["steps"] if step["verdict"] == "fail"}
    noted = {name: turn[name] for name in names}
    noted |= {"retrievable": turn["values"]["retrievable"], "failed_steps": failed}
    return {name: figure(value) for name, value in noted.items() if value}


def render_text(report: Mapping[str, Any]) -> str:
    """Return the report for people."""
    shown = (columns(rows, str.ljust if title == "Figures" else str.rjust) for title, rows in tables(report).items())
    return "\n\n".join(map("\n".join, (notes(report), *shown, _first_events(report["conversations"]))))


def _first_events(conversations: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    known: Counter[str] = Counter()
    for conversation in conversations:
        for turn in conversation["turns"]:
            for kind, text in events(turn).items():
                known[kind] += 1
                if known[kind] <= _MOST:
                    yield f"{conversation['name']}, request {turn['number']}: {kind}: {text}"
    yield from (f"{count - _MOST:,} more of: {kind}" for kind, count in known.items() if count > _MOST)


_OPEN = 3
_BAR = "linear-gradient(to right, var(--cached) {:.1%}, var(--fresh) 0 {:.1%}, var(--was) 0 {:.1%}, #0000 0)"


def render_page(report: Mapping[str, Any], title: str) -> str:
    """Return the report as a page of HTML."""
    template = files("proxy").joinpath("data/replay.html").read_text(encoding="utf-8")
    conversations = enumerate(report["conversations"])
    return Template(template).substitute(
        title=escape(title),
        notes="\n".join(f"<p>{escape(note)}</p>" for note in notes(report)),
        tables="\n".join(f"<h2>{name}</h2>\n{_html(rows)}" for name, rows in tables(report).items()),
        conversations="\n".join(_conversation(each, is_open=place < _OPEN) for place, each in conversations),
    )


def _conversation(conversation: Mapping[str, Any], *, is_open: bool) -> str:
    """Return a table of the requests; behind each stand the tokens that are read from the cache, sent, and came."""
    turns: Sequence[Turn] = conversation["turns"]
    sizes = [(turn["cached"], _size(turn, "after"), _size(turn, "before")) for turn in turns]
    most, rows = max((1, *map(max, sizes))), [["request", "tokens", "sent", "cached", "what to know"]]
    for turn, (cached, after, before) in zip(turns, sizes, strict=True):
        told = "\n".join(map(": ".join, events(turn).items()))
        rows.append([*map(figure, (turn["number"], before, after, cached)), told])
    bars = [_BAR.format(*(size / most for size in each)) for each in sizes]
    about = f"{len(turns)} requests, cost {figure(_ratio(*_costs(turns, OWN)))}"
    head = f"<details{' open' if is_open else ''}><summary><b>{escape(conversation['name'])}</b>{about}</summary>"
    return "\n".join([head, _html(rows, ["none", *bars]), "</details>"])


def _html(rows: Rows, backgrounds: Iterable[str] = repeat("none")) -> str:
    lines = []
    for kind, row, background in zip(chain(["th"], repeat("td")), rows, backgrounds, strict=False):
        cells = "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row)
        lines.append(f'<tr style="background: {background}">{cells}</tr>')
    return '<div class="wide"><table>' + "\n".join(lines) + "\n</table></div>"
