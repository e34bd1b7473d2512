// The charts of the page, drawn by uPlot: a sparkline, and the timeline of a conversation.

import {costs, count, dollars, element, isNumber, lines, many, none, parts, percent, short} from "./parts.js";

const color = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const STACK = [["output", "answer"], ["fresh", "not cached"], ["written", "written to the cache"], ["read", "read from the cache"]];
const MARKS = {cut: ["▼", "cut"], compact: ["◆", "shortened"], recall: ["▲", "brought in"], moved: ["↕", "rearranged"], broken: ["✕", "prefix break"], failed: ["!", "problem"]};

// colors follow the system's scheme, sizes the window; what has left the page is let go
function follow(holder, build) {
  let chart = build(holder.clientWidth || 120), width = holder.clientWidth;
  const again = () => { chart.destroy(); chart = build(width || 120); };
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const gone = () => { scheme.removeEventListener("change", repaint); sizes.disconnect(); chart.destroy(); };
  const repaint = () => holder.isConnected ? again() : gone();
  const sizes = new ResizeObserver(() => {
    if (!holder.isConnected) return gone();
    if (holder.clientWidth && Math.abs(holder.clientWidth - width) > 1) { width = holder.clientWidth; chart.setSize({width, height: chart.height}); }
  });
  scheme.addEventListener("change", repaint);
  sizes.observe(holder);
  return () => chart;
}

const steps = values => values.map((_, place) => place + 1);

// tokens of each turn after the chain, over those of the unchanged conversation
export function sparkline(holder, after, before) {
  const values = before && before.length === after.length ? before : after;
  const most = Math.max(1, ...values, ...after);
  holder.ariaLabel = "Tokens of its turns: " + (after.length ? "from " + count(after[0]) + " to " + count(after.at(-1)) + ", at most " + count(Math.max(...after)) : "not counted");
  holder.role = "img";
  if (after.length < 2) { holder.append(element("span", "dim", after.length ? "one turn" : none)); return; }
  follow(holder, width => new uPlot({
    width, height: 28, legend: {show: false}, cursor: {show: false}, padding: [2, 2, 2, 2],
    axes: [{show: false}, {show: false}],
    scales: {x: {time: false}, y: {range: [0, most]}},
    series: [{}, {stroke: color("gone-ink"), width: 1, points: {show: false}}, {stroke: color("bar"), fill: color("bar-soft"), width: 1.5, points: {show: false}}],
  }, [steps(after), values, after], holder));
}

// ---- sums over time: a bar a period, a color a group; groups beyond the colors share the last one, losses hang below

export const COLORS = ["fresh", "output", "read", "written", "gone-ink"];

export function periodBars(holder, groups, seconds, write, title) {
  const starts = groups.flatMap(group => [...group.keys()]), first = Math.min(...starts), last = Math.max(...starts);
  const times = Array.from({length: Math.round((last - first) / seconds) + 1}, (_, place) => first + place * seconds);
  // each bar is drawn over the taller one of the groups before it
  const up = times.map(() => 0), down = times.map(() => 0), layers = [];
  for (const [place, group] of groups.entries()) {
    times.forEach((start, at) => { const value = group.get(start) || 0; (value < 0 ? down : up)[at] += value; });
    for (const heights of [up, down]) layers.unshift([COLORS[Math.min(place, COLORS.length - 1)], [...heights]]);
  }
  const sums = times.map((_, at) => up[at] + down[at]), most = Math.max(...up), least = Math.min(...down);
  holder.role = "img";
  holder.ariaLabel = title + " over " + many(times.length, "period") + ": at most " + write(Math.max(...sums));
  const axis = size => ({stroke: color("dim"), grid: {stroke: color("line"), width: 1}, ticks: {stroke: color("line"), width: 1}, size, font: "11px system-ui, sans-serif"});
  follow(holder, width => new uPlot({
    width, height: 220, legend: {show: false}, cursor: {show: false}, padding: [8, 24, 0, 0],
    scales: {x: {time: true, range: [first - seconds, last + seconds]}, y: {range: [1.04 * least, Math.max(1.04 * most, least < 0 ? 0 : 1e-9)]}},
    axes: [{...axis(34), values: (u, splits, nth, space, step) => splits.map(value => new Date(1000 * value)).map(when => step < 86400 ? when.toLocaleTimeString("en-GB", {hour: "2-digit", minute: "2-digit"}) : when.toLocaleDateString("en-GB", {day: "numeric", month: "short"}))},
      {...axis(64), values: (u, splits) => splits.map(value => write === count ? short(value) : Number(value.toPrecision(3)))}],
    series: [{}, ...layers.map(([name]) => ({fill: color(name), width: 0, paths: uPlot.paths.bars({size: [0.82, 56]}), points: {show: false}}))],
  }, [times, ...layers.map(([, heights]) => heights)], holder));
}

// ---- what happened in a turn: by the kinds of the changes, compared with those of the turn before it

const FIRST = {removed: "cut", shortened: "compact", changed: "compact", added: "recall", moved: "moved"};

// a step that took out and put in has cut, where less came in than left; else it has arranged anew what was there
function balances(changes) {
  const found = new Map();
  for (const {kind, step, tokens_before, tokens_after} of changes) {
    if (!step || kind !== "removed" && kind !== "added") continue;
    const known = found.get(step) || {removed: 0, added: 0};
    known[kind] += kind === "removed" ? tokens_before || 0 : tokens_after || 0;
    found.set(step, known);
  }
  return found;
}

function totals(record) {
  const found = new Map(), both = balances(record.changes || []);
  for (const change of record.changes || []) {
    const balance = both.get(change.step), isBoth = balance && balance.removed && balance.added && (change.kind === "removed" || change.kind === "added");
    if (isBoth && change.kind === "added") continue;
    const mark = isBoth && balance.removed <= balance.added ? "moved" : FIRST[change.kind];
    if (!mark) continue;
    const known = found.get(mark) || {messages: 0, tokens: 0, steps: new Set()};
    known.messages += change.count || 1;
    known.tokens += Math.abs((change.tokens_before || 0) - (change.tokens_after || 0));
    if (change.step) known.steps.add(change.step);
    found.set(mark, known);
  }
  return found;
}

// [{mark, why}] of each turn
export function marksOf(records) {
  let before = new Map();
  return records.map(record => {
    const now = totals(record), found = [];
    const reasons = names => record.steps.filter(step => names.has(step.policy) && step.verdict === "rewrite").map(step => step.policy + ": " + step.why);
    for (const [mark, {messages, tokens, steps}] of now) {
      const known = before.get(mark);
      if (known && known.messages >= messages) continue;
      const grown = messages - (known ? known.messages : 0);
      const told = many(grown, "message") + " " + MARKS[mark][1] + ", " + count(tokens) + " tokens in all";
      found.push({mark, why: [told, ...reasons(steps)].join("\n  ")});
    }
    if (record.prefix_broken) {
      const {message, lost, step} = record.prefix_broken;
      found.push({mark: "broken", why: "prefix break" + (isNumber(message) ? " at message " + message : " in the tools") + ": " + count(lost) + " tokens not read again" + (step ? ", moved by " + step : "")});
    }
    const failures = record.steps.filter(step => step.verdict === "fail" || step.verdict === "reject");
    if (record.status >= 400 || record.error || failures.length) {
      found.push({mark: "failed", why: [record.status >= 400 || record.error ? "status " + record.status + " " + (record.error || "") : "", ...failures.map(step => step.policy + " " + step.verdict + ": " + step.why)].filter(Boolean).join("\n  ")});
    }
    before = now;
    return found;
  });
}

export const markName = mark => MARKS[mark][0] + " " + MARKS[mark][1];

// ---- the timeline: a bar a turn, the unchanged conversation as a line behind; `open` gets the record that was picked

export function timeline(holder, records, marks, {money, open}) {
  const sums = records.map(record => (money ? costs(record) : parts(record)) || {read: 0, written: 0, fresh: 0, output: 0});
  const unchanged = records.map((record, place) => {
    const prompt = money ? record.usd_unchanged : record.tokens_before;
    return isNumber(prompt) ? prompt + sums[place].output : null;
  });
  // each bar covers the lower part of the one before it: output on top, what was read at the bottom
  const order = ["read", "written", "fresh", "output"];
  const upTo = name => sums.map(sum => order.slice(0, order.indexOf(name) + 1).reduce((total, each) => total + sum[each], 0));
  const top = upTo("output");
  const most = Math.max(money ? 1e-9 : 1, ...top, ...unchanged.map(value => value || 0));
  const number = money ? dollars : count;
  const tip = element("div", "tip");
  tip.role = "status";
  tip.hidden = true;
  const plot = element("div", "chart");
  plot.tabIndex = 0;
  plot.role = "group";
  plot.ariaLabel = "Timeline of " + many(records.length, "turn") + ". Left and right go from turn to turn, Enter opens one.";
  holder.replaceChildren(legend(), plot, tip);
  let picked = -1;

  function tell(place) {
    picked = place;
    tip.hidden = place < 0;
    if (place < 0) return;
    const record = records[place], sum = sums[place];
    const rows = STACK.filter(([name]) => sum[name] > 0).map(([name, text]) => element("span", "key " + name, text + " " + number(sum[name])));
    const saved = isNumber(record.tokens_before) && isNumber(record.tokens_after) && record.tokens_before !== record.tokens_after ? "; " + percent(record.tokens_after / record.tokens_before) + " of the client's " + count(record.tokens_before) + " tokens were sent" : "";
    tip.replaceChildren(element("b", "", "Turn " + (record.turn || place + 1)), " ", number(top[place]) + (money ? " US$" : " tokens") + saved, element("div", "keys", ...rows),
      unchanged[place] === null ? "" : element("div", "dim", "unchanged: " + number(unchanged[place])),
      ...marks[place].map(({mark, why}) => element("div", "mark", element("span", "sign " + mark, MARKS[mark][0]), " ", lines(why))));
  }

  function draw(u) {
    const context = u.ctx, pixels = devicePixelRatio || 1;
    context.save();
    context.font = 11 * pixels + "px system-ui, sans-serif";
    context.textAlign = "center";
    marks.forEach((found, place) => {
      const left = u.valToPos(place + 1, "x", true);
      found.forEach(({mark}, nth) => {
        context.fillStyle = color("mark-" + mark);
        context.fillText(MARKS[mark][0], left, u.bbox.top - (3 + 11 * nth) * pixels);
      });
    });
    context.restore();
  }

  const high = Math.max(0, ...marks.map(found => found.length));
  const axis = size => ({stroke: color("dim"), grid: {stroke: color("line"), width: 1}, ticks: {stroke: color("line"), width: 1}, size, font: "11px system-ui, sans-serif"});
  const bars = uPlot.paths.bars({size: [0.82, 56], gap: 0});
  const bar = name => ({fill: color(name), width: 0, paths: bars, points: {show: false}});
  const chart = follow(plot, width => {
    const small = width < 500;
    const made = new uPlot({
      width, height: small ? 220 : 300, legend: {show: false}, padding: [12 + 11 * high, 8, 0, 0],
      cursor: {y: false, drag: {x: false, y: false}, points: {show: false}},
      scales: {x: {time: false, range: [0.4, records.length + 0.6]}, y: {range: [0, most * 1.04]}},
      axes: [{...axis(28), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], values: (u, splits) => splits.map(value => Number.isInteger(value) && value >= 1 && value <= records.length ? records[value - 1].turn || value : "")},
        {...axis(small ? 52 : 58), values: (u, splits) => splits.map(value => money ? value.toPrecision(2) : short(value))}],
      series: [{}, {stroke: color("gone-ink"), fill: color("gone-soft"), width: 1.5, points: {show: records.length === 1}, paths: uPlot.paths.linear()}, ...STACK.map(([name]) => bar(name))],
      hooks: {draw: [draw], setCursor: [u => { if (u.cursor.left >= 0 && u.cursor.idx !== null) tell(u.cursor.idx); }]},
    }, [steps(records), unchanged, ...STACK.map(([name]) => upTo(name))], plot);
    made.over.addEventListener("click", () => { if (picked >= 0 && matchMedia("(hover: hover)").matches) open(records[picked]); });
    return made;
  });

  plot.addEventListener("keydown", event => {
    const by = {ArrowLeft: -1, ArrowRight: 1, Home: -records.length, End: records.length}[event.key];
    if (by) {
      const next = Math.max(0, Math.min(records.length - 1, picked < 0 ? by < 0 ? records.length - 1 : 0 : picked + by));
      chart().setCursor({left: chart().valToPos(next + 1, "x"), top: 10});
      tell(next);
    } else if (event.key === "Enter" && picked >= 0) open(records[picked]);
    else return;
    event.preventDefault();
  });

  function legend() {
    const present = new Set(marks.flat().map(({mark}) => mark));
    const shown = STACK.filter(([name]) => sums.some(sum => sum[name] > 0));
    return element("p", "keys", ...shown.toReversed().map(([name, text]) => element("span", "key " + name, text)),
      unchanged.some(value => value !== null) ? element("span", "key unchanged", "unchanged conversation") : null,
      ...Object.keys(MARKS).filter(mark => present.has(mark)).map(mark => element("span", "", element("span", "sign " + mark, MARKS[mark][0]), " " + MARKS[mark][1])));
  }
}
