"""What a replay found, for machines and for people."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from proxy.server.replay.prompts import OTHERS, OWN
from proxy.server.replay.run import Replayed
from proxy.server.replay.score import ScoredRequest
from proxy.step import Step
from proxy.text import counted

RULES = (OWN, *OTHERS)

_MOST = 5
"""Breaks and lost values that the text shows."""


def build_report(
    replayed: Sequence[Replayed], against: Sequence[Replayed] | None = None, *, file: str = ""
) -> dict[str, Any]:
    """All of a replay as JSON values: totals, the same by source, and each turn; `file` is that of the other chain."""
    report = {
        "chain": _chains(replayed),
        "against": None if against is None else f"{_chains(against)}{f' of {file}' if file else ''}",
        "total": _compared(replayed, against),
        "sources": {
            source: _compared(_of(replayed, source), None if against is None else _of(against, source))
            for source in dict.fromkeys(each.source for each in replayed)
        },
        "conversations": [_conversation(each) for each in replayed],
    }
    if against is not None:
        report["against_total"] = totals(against)
    return report


def _chains(replayed: Iterable[Replayed]) -> str:
    return ", ".join(dict.fromkeys(turn.chain for each in replayed for turn in each.turns))


def _of(replayed: Iterable[Replayed], source: str) -> list[Replayed]:
    return [each for each in replayed if each.source == source]


def _compared(replayed: Sequence[Replayed], against: Sequence[Replayed] | None) -> dict[str, Any]:
    found = totals(replayed)
    if against is not None:
        ours, theirs = (_costs(turn for each in some for turn in each.turns) for some in (replayed, against))
        found["cost_against"] = {rule: _ratio(ours[rule][0], theirs[rule][0]) for rule in RULES}
    return found


def totals(replayed: Sequence[Replayed]) -> dict[str, Any]:
    """The figures of some conversations together."""
    turns = [turn for each in replayed for turn in each.turns]
    sent = [turn for turn in turns if turn.refused is None]
    before, after = sum(turn.tokens_before for turn in sent), sum(turn.tokens_after for turn in sent)
    needed, visible, lost = (
        sum(getattr(turn.values, name) for turn in turns) for name in ("needed", "visible", "lost")
    )
    ends = [each.turns[-1].messages for each in replayed if each.turns]
    breaks = [turn.broken for turn in sent if turn.broken is not None]
    priced = [
        (turn.usd, turn.usd_unchanged) for turn in sent if turn.usd is not None and turn.usd_unchanged is not None
    ]
    times = sorted(turn.seconds * 1000 for turn in turns)
    return {
        "conversations": len(replayed),
        "requests": len(turns),
        "refused": len(turns) - len(sent),
        "too_large": {
            "unchanged": sum(turn.tokens_before > turn.usable for turn in turns),
            "sent": sum(turn.tokens_after > turn.usable for turn in sent),
        },
        "tokens": {"before": before, "after": after, "ratio": _ratio(after, before)},
        "cost": {rule: _ratio(*pair) for rule, pair in _costs(sent).items()},
        "usd": sum(pair[0] for pair in priced) if priced else None,
        "usd_unchanged": sum(pair[1] for pair in priced) if priced else None,
        "cached": {
            "share": _ratio(sum(turn.cached for turn in sent), after),
            "share_unchanged": _ratio(sum(turn.cached_unchanged for turn in sent), before),
        },
        "breaks": {"count": len(breaks), "tokens": sum(each.lost for each in breaks)},
        "values": {
            "needed": needed,
            "visible": visible,
            "retrievable": needed - visible - lost,
            "lost": lost,
            "survival": _ratio(visible, needed),
        },
        "messages": {name: sum(getattr(end, name) for end in ends) for name in ("all", "removed", "shortened", "gone")},
        "recalled": {"tokens": sum(turn.recalled for turn in turns), "turns": sum(turn.recalled > 0 for turn in turns)},
        "left_out": sum(len(turn.left_out) for turn in turns),
        "internal_calls": sum(max((turn.internal_calls for turn in each.turns), default=0) for each in replayed),
        "violations": {
            "requests": sum(bool(turn.violations) for turn in turns),
            "rules": dict(Counter(rule for turn in turns for rule in turn.violations)),
        },
        "failed_steps": sum(step.verdict == "fail" for turn in turns for step in turn.steps),
        "milliseconds": {"p50": _percentile(times, 0.5), "p99": _percentile(times, 0.99)},
        "steps": _steps(step for turn in turns for step in turn.steps),
        "calibration": _calibration(turns),
    }


def _costs(turns: Iterable[ScoredRequest]) -> dict[str, tuple[float, float]]:
    """What requests cost by each of the rules, and what the client's would have."""
    found = dict.fromkeys(RULES, (0.0, 0.0))
    for turn in turns:
        if turn.refused is None:
            found = {
                rule: (ours + turn.cost[rule], theirs + turn.unchanged[rule]) for rule, (ours, theirs) in found.items()
            }
    return found


def _calibration(turns: Iterable[ScoredRequest]) -> dict[str, Any] | None:
    """How well our rules predict the reads from the cache that the upstream reported; None where there were none."""
    known = [turn.reported for turn in turns if turn.reported is not None]
    expected, reported = sum(each.expected for each in known), sum(each.cached for each in known)
    if not (expected or reported):  # that both say nothing proves nothing
        return None
    counted, tokens = sum(each.prompt for each in known), sum(each.tokens for each in known)
    return {
        "turns": len(known),
        "met": sum(each.is_met for each in known),
        "expected": expected,
        "reported": reported,
        "share_expected": _ratio(expected, counted),
        "share_reported": _ratio(reported, tokens),
        "prompt_off": _ratio(counted - tokens, tokens),
    }


def _steps(steps: Iterable[Step]) -> dict[str, dict[str, Any]]:
    by_name: dict[str, list[Step]] = defaultdict(list)
    for step in steps:
        by_name[step.policy].append(step)
    return {
        name: {
            **Counter(step.verdict for step in some),
            "tokens": sum((step.tokens_after or 0) - (step.tokens_before or 0) for step in some if not step.observed),
            "ms_p50": _percentile(sorted(step.seconds * 1000 for step in some), 0.5),
        }
        for name, some in by_name.items()
    }


def _conversation(replayed: Replayed) -> dict[str, Any]:
    return {"name": replayed.name, "source": replayed.source, "turns": [_turn(turn) for turn in replayed.turns]}


def _turn(turn: ScoredRequest) -> dict[str, Any]:
    made = asdict(turn)
    made["steps"] = [step.shown() for step in turn.steps]
    made["milliseconds"] = round(made.pop("seconds") * 1000, 3)
    return made


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 4) if whole else None


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


def render_text(report: Mapping[str, Any]) -> str:
    """The report for people."""
    total = report["total"]
    about = f"chain {report['chain']}" + (f" against {report['against']}" if report["against"] else "")
    lines = [
        f"{counted(total['conversations'], 'conversation')}, {counted(total['requests'], 'request')}; {about}",
        "",
        *_table(report),
        "",
        "cost is that of the prompts against the client's own requests: below 1 the chain saves money",
        *_too_large(total["too_large"]),
        *_money(total),
        "",
        *_breaks(report),
        *_values(report),
        *_rest(total),
        "",
        *_step_lines(total["steps"]),
    ]
    return "\n".join(lines)


def _table(report: Mapping[str, Any]) -> list[str]:
    head = ["source", "requests", "tokens", "sent", "survival", *(f"cost {rule}" for rule in RULES), "breaks"]
    rows = [head]
    sources: dict[str, Any] = report["sources"]
    shown = {**(sources if len(sources) > 1 else {}), "total": report["total"]}
    if report["against"]:
        shown[f"(chain {report['against']})"] = report["against_total"]
    for name, each in shown.items():
        tokens, cost = each["tokens"], each["cost"]
        rows.append([
            name, f"{each['requests']:,}", f"{tokens['before']:,}", f"{tokens['after']:,}",
            _shown(each["values"]["survival"]), *(_shown(cost[rule]) for rule in RULES), f"{each['breaks']['count']:,}",
        ])  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _too_large(total: Mapping[str, int]) -> list[str]:
    """What the costs do not say: requests for which no provider has room."""
    if not total["unchanged"]:
        return []
    sent = f"{total['sent']:,}" if total["sent"] else "none"
    return [f"of the client's own requests {total['unchanged']:,} do not fit the model's window, of those sent {sent}"]


def _money(total: Mapping[str, Any]) -> list[str]:
    lines = []
    if total["usd"] is not None:
        lines.append(f"prompts by the model's prices: ${total['usd_unchanged']:.4f} -> ${total['usd']:.4f}")
    if "cost_against" in total:
        costs = ", ".join(f"{rule}: {_shown(cost)}" for rule, cost in total["cost_against"].items())
        lines.append(f"cost against the other chain: {costs}")
    return [*lines, badge(total["calibration"])]


def badge(calibration: Mapping[str, Any] | None) -> str:
    """How far the costs can be trusted."""
    if calibration is None:
        return "not calibrated: the files report no reads from the upstream's cache"
    expected, reported = calibration["share_expected"] or 0.0, calibration["share_reported"] or 0.0
    return (
        f"calibrated: {calibration['met']} of {calibration['turns']} cache reads predicted within 5 % of the prompt; "
        f"of all prompts {expected:.1%} predicted, {reported:.1%} reported"
    )


def _breaks(report: Mapping[str, Any]) -> list[str]:
    total = report["total"]["breaks"]
    if not total["count"]:
        return ["prefix breaks: none"]
    lines = [f"prefix breaks: {total['count']}, {total['tokens']:,} tokens that cannot be read from the cache"]
    found = [
        (turn["broken"], each["name"], turn["number"])
        for each in report["conversations"]
        for turn in each["turns"]
        if turn["broken"] is not None
    ]
    for broken, name, number in sorted(found, key=lambda each: -each[0]["lost"])[:_MOST]:
        step = broken["step"] or "no single step"
        lines += [
            f"  {name}, request {number}: from byte {broken['at']:,} on, {broken['lost']:,} tokens, by {step}",
            f"    was {broken['before']}",
            f"    is  {broken['after']}",
        ]
    return lines


def _values(report: Mapping[str, Any]) -> list[str]:
    values, messages = report["total"]["values"], report["total"]["messages"]
    lines = [
        f"values that answers needed: {values['needed']}; visible {values['visible']}, behind a handle "
        f"{values['retrievable']}, lost {values['lost']}"
    ]
    missing = [
        f"  {each['name']}, request {turn['number']}: {', '.join(turn['missing'][:_MOST])}"
        for each in report["conversations"]
        for turn in each["turns"]
        if turn["missing"]
    ]
    lines += missing[:_MOST]
    return [
        *lines,
        f"messages at the end: {messages['all']:,}; removed {messages['removed']:,} ({messages['gone']:,} of them "
        f"behind no handle), shortened {messages['shortened']:,}",
    ]


def _rest(total: Mapping[str, Any]) -> list[str]:
    recalled, rules, times = total["recalled"], total["violations"]["rules"], total["milliseconds"]
    internal = total["internal_calls"]
    unplayed = f"not played: {counted(internal, 'call')} of internal tools, so later prompts are shorter than they were"
    broken = "; ".join(f"{rule} ({count})" for rule, count in rules.items()) or "none"
    took = " and ".join(f"{times[share]:.1f} ms ({share})" for share in ("p50", "p99") if times[share] is not None)
    return [
        f"recalled: {recalled['tokens']:,} tokens in {recalled['turns']:,} requests; tools left out that were called: "
        f"{total['left_out']}",
        f"rules of the wire broken: {broken}; refused requests: {total['refused']}; failed steps: "
        f"{total['failed_steps']}",
        *([unplayed] if internal else []),
        f"the chain took {took}",
    ]


def _step_lines(steps: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = [["step", "rewrote", "kept", "skipped", "failed", "rejected", "tokens", "ms (p50)"]]
    for name, each in steps.items():
        counts = [str(each.get(verdict, 0)) for verdict in ("rewrite", "keep", "skip", "fail", "reject")]
        rows.append([name, *counts, f"{each['tokens']:+,}", _shown(each["ms_p50"])])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows] if steps else []


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
