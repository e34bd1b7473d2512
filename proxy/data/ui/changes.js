// What came in and what went out, side by side, message by message; and the steps that made the difference.

import {bar, button, count, difference, dollars, element, isLoss, isNumber, lines, many, none, part, percent, plain, said, span, table, verdict} from "./parts.js";

const SHOWN = 1500;
const NAMES = {unchanged: "unchanged", shortened: "shortened", removed: "removed", added: "added", moved: "moved", changed: "changed"};

// ---- tokens by section against the window

export function sections(record) {
  const both = record.sections || {}, window = record.usable || record.window || 0;
  const totals = {before: record.tokens_before, after: record.tokens_after};
  if (!isNumber(totals.before) && !isNumber(totals.after)) return null;
  const all = Math.max(1, window, totals.before || 0, totals.after || 0);
  const made = element("div", "sections");
  for (const [side, name] of [["before", "came in"], ["after", "went out"]]) {
    const track = element("span", "track"), sizes = both[side] || {messages: totals[side]};
    for (const section of ["system", "tools", "messages"]) {
      const piece = element("i", section);
      piece.style.width = 100 * (sizes[section] || 0) / all + "%";
      piece.title = section + ": " + count(sizes[section] || 0) + " tokens";
      track.append(piece);
    }
    track.ariaHidden = "true";
    const told = ["system", "tools", "messages"].filter(section => both[side] && sizes[section]).map(section => section + " " + count(sizes[section]));
    made.append(element("span", "dim", name), track, element("span", "number", count(totals[side]), told.length ? element("span", "dim", " tokens: " + told.join(", ")) : " tokens"));
  }
  if (window) {
    const share = (totals.after || 0) / window, track = bar(share, share > 1 ? "track window over" : share > 0.8 ? "track window near" : "track window");
    made.append(element("span", "dim", "window"), track, element("span", "number", percent(share), element("span", "dim", " of " + count(window) + " usable tokens")));
  }
  return element("div", "", element("p", "keys", ...["system", "tools", "messages"].map(section => element("span", "key " + section, section))), made);
}

// ---- steps, and what each is worth

function paid(record, step) {
  if (!step.usd_saved) return none;
  if (!isNumber(step.pays_after)) return "never";
  return step.pays_after === 0 ? "at once" : record.turn ? "turn " + count(record.turn + step.pays_after) : "after " + many(step.pays_after, "turn");
}

function stepRow(record, step, place, pick) {
  const choose = button("", () => pick(place), "step");
  choose.append(said(step.policy));
  const why = element("td", "why", said(step.why, "bdi", "long"));
  const known = Object.entries(step.facts || {});
  if (known.length) why.append(element("div", "more code", ...known.map(([name, value]) => said(name + "=" + (value !== null && typeof value === "object" ? JSON.stringify(value) : value)))));
  for (const finding of step.findings || []) why.append(element("div", "more", said(finding)));
  return element("tr", "",
    element("td", "name", choose), element("td", "", verdict(step)),
    element("td", "number left", count(step.tokens_after)), element("td", "number", difference(step.tokens_before, step.tokens_after)),
    element("td", "number net" + (step.net_tokens < 0 ? " bad" : ""), step.net_tokens ? count(step.net_tokens) : none),
    element("td", "number worth" + (isLoss(step.usd_saved) ? " bad" : ""), step.usd_saved ? dollars(step.usd_saved) : none),
    element("td", "number pays", paid(record, step)),
    element("td", "number", span(step.milliseconds)), why);
}

const STEPS = [["Step"], ["Verdict"], ["Tokens", "number"], ["Change", "number"], ["Saved, net tokens", "number"], ["Saved, net US$", "number"], ["Paid back", "number"], ["Time", "number"], ["Why"]];

// ---- messages

function texts(message) {
  const found = [];
  const content = message.content;
  if (typeof content === "string") found.push(["", content]);
  else if (Array.isArray(content)) for (const each of content) {
    if (each && typeof each.text === "string") found.push(["", each.text]);
    else if (each && each.image_url) found.push(["image", String(each.image_url.url || "").slice(0, 80)]);
    else found.push([each && each.type || "part", JSON.stringify(each)]);
  } else if (content !== null && content !== undefined) found.push(["content", JSON.stringify(content)]);
  if (typeof message.reasoning_content === "string") found.push(["reasoning", message.reasoning_content]);
  for (const call of message.tool_calls || []) {
    const asked = call && call.function || {};
    found.push(["calls " + (asked.name || "?"), typeof asked.arguments === "string" ? asked.arguments : JSON.stringify(asked.arguments || {})]);
  }
  return found;
}

// the part in which two texts differ, from and to
function differing(one, other) {
  let start = 0, end = 0;
  const most = Math.min(one.length, other.length);
  while (start < most && one[start] === other[start]) start += 1;
  while (end < most - start && one[one.length - 1 - end] === other[other.length - 1 - end]) end += 1;
  return [start, one.length - end];
}

function written(text, other, mark) {
  const made = element("pre", "text");
  const [from, to] = other === null ? [0, 0] : differing(text, other);
  const fill = most => {
    const piece = (start, end) => lines(text.slice(Math.min(start, most), Math.min(end, most)));
    made.replaceChildren(piece(0, from), to > from ? element(mark, "", piece(from, to)) : "", piece(Math.max(from, to), text.length));
  };
  fill(text.length > SHOWN * 1.3 ? SHOWN : text.length);
  if (text.length <= SHOWN * 1.3) return [made];
  const all = button("Show all " + count(text.length) + " characters", () => { fill(text.length); all.remove(); }, "small");
  return [made, all];
}

function cell(side, change, message, other) {
  const place = change[side], tokens = change["tokens_" + side];
  if (place === null || place === undefined) return element("div", "cell none");
  const head = element("div", "who", said(message && message.role || change.role || "message", "b"), message && message.name ? said(" " + message.name) : null,
    element("span", "dim", " #" + place + (isNumber(tokens) ? " · " + many(tokens, "token") : "")));
  const made = element("div", "cell " + side, head);
  if (!message) return made;
  const others = other ? texts(other) : [];
  texts(message).forEach(([name, text], nth) => {
    if (name) made.append(element("div", "what", said(name)));
    made.append(...written(text, others[nth] ? others[nth][1] : null, side === "before" ? "del" : "ins"));
  });
  return made;
}

// several neighbours of one kind, folded; on one side only where the other has none
function run(change, before, after) {
  const made = element("details", "same"), number = change.count || 1, isKept = change.kind === "unchanged";
  const size = isKept ? ", " + count(change.tokens_before) + " tokens" : " " + difference(change.tokens_before, change.tokens_after) + " tokens";
  made.append(element("summary", "", isKept ? many(number, "message") + " unchanged" : element("span", "kind " + change.kind, NAMES[change.kind] || plain(change.kind)),
    isKept ? null : " " + many(number, "message"), change.step ? element("span", "dim", " by ", said(change.step)) : null, element("span", "dim", size)));
  const at = (place, nth) => place === null || place === undefined ? null : place + nth;
  made.addEventListener("toggle", () => {
    if (!made.open || made.childElementCount > 1) return;
    for (let nth = 0; nth < number; nth += 1) {
      const one = {before: at(change.before, nth), after: at(change.after, nth), role: change.role, tokens_before: number === 1 ? change.tokens_before : null, tokens_after: number === 1 ? change.tokens_after : null};
      const cells = ["before", "after"].filter(side => one[side] !== null).map(side => cell(side, one, (side === "before" ? before : after)?.[one[side]], null));
      made.append(cells.length === 2 ? element("div", "pair", ...cells) : cells[0]);
    }
    if (!before) made.append(element("p", "dim", "The text of messages is not kept: records.text is off."));
  });
  return made;
}

function toolsOf(text) {
  if (!text || !(text.tools_before || text.tools_after)) return null;
  const names = list => (list || []).map(tool => String(tool && tool.function && tool.function.name || tool && tool.name || "?"));
  const before = names(text.tools_before), after = names(text.tools_after);
  if (!before.length && !after.length) return null;
  const shown = [...before.map(name => [name, after.includes(name) ? "" : "removed"]), ...after.filter(name => !before.includes(name)).map(name => [name, "added"])];
  const made = element("details", "same", element("summary", "", many(before.length, "tool") + " came in, " + count(after.length) + " went out"));
  made.append(element("ul", "tools", ...shown.map(([name, kind]) => element("li", kind, said(name), kind ? element("span", "kind", " " + kind) : null))));
  return made;
}

// `record` has steps, changes and perhaps text; `original` returns the archived text of a handle, null where none is read
export function sideBySide(record, original) {
  const text = record.text || {}, changes = record.changes || [];
  const before = text.before || null, after = text.after || null;
  const rows = [], steps = record.steps || [];
  let picked = -1;
  const body = element("div", "pairs");

  for (const change of changes) {
    if (change.kind === "unchanged" || (change.count || 1) > 1) {
      const folded = run(change, before, after);
      if (change.kind !== "unchanged") {
        if (change.handle && original) folded.firstChild.append(" ", button("Original", () => show(change.handle, original), "small"));
        folded.dataset.step = change.step || "";
        rows.push(folded);
      }
      body.append(folded);
      continue;
    }
    const old = before && change.before !== null ? before[change.before] : null, fresh = after && change.after !== null ? after[change.after] : null;
    const label = element("div", "label", element("span", "kind " + (NAMES[change.kind] ? change.kind : "changed"), NAMES[change.kind] || plain(change.kind)),
      change.step ? element("span", "dim", " by ", said(change.step)) : null,
      isNumber(change.tokens_before) && isNumber(change.tokens_after) ? element("span", "dim", " " + difference(change.tokens_before, change.tokens_after) + " tokens") : null);
    if (change.handle && original) label.append(" ", button("Original", () => show(change.handle, original), "small"));
    const pair = element("div", "pair", label, cell("before", change, old, fresh), cell("after", change, fresh, old));
    pair.dataset.step = change.step || "";
    rows.push(pair);
    body.append(pair);
  }
  if (!changes.length) body.append(element("p", "empty", record.changes ? "No message was changed." : "It is not known which messages were changed."));

  const listed = element("tbody");
  const position = element("span", "dim");
  function pick(place) {
    picked = place === picked ? -1 : Math.max(-1, Math.min(steps.length - 1, place));
    const step = steps[picked];
    [...listed.children].forEach((row, nth) => row.classList.toggle("picked", nth === picked));
    [...listed.children].forEach((row, nth) => { row.querySelector("button").ariaPressed = String(nth === picked); });
    for (const row of rows) row.classList.toggle("other", !!step && row.dataset.step !== step.policy);
    const mine = rows.filter(row => step && row.dataset.step === step.policy);
    position.textContent = !step ? "all steps" : "step " + (picked + 1) + " of " + steps.length + ": " + plain(step.policy) + ", " + (mine.length ? many(mine.length, "change") : "no change of a message");
  }
  listed.append(...steps.map((step, place) => stepRow(record, step, place, pick)));
  const head = table("Steps of the chain", STEPS, [], "steps");
  head.tBodies[0].replaceWith(listed);
  const stepper = element("p", "stepper", button("‹", () => pick(Math.max(-1, picked - 1)), "small"), button("›", () => pick(Math.min(steps.length - 1, picked + 1)), "small"), " ", position);
  stepper.children[0].ariaLabel = "Previous step";
  stepper.children[1].ariaLabel = "Next step";
  position.role = "status";
  pick(-1);
  const made = element("div", "compared",
    steps.length ? element("div", "wide-table", head) : element("p", "dim", "No step ran: the bytes passed through."),
    element("div", "title", element("h2", "", "Before and after"), steps.length ? stepper : null),
    element("div", "pair heads", element("div", "cell", "what the client sent"), element("div", "cell", "what went to the upstream")), toolsOf(record.text), body);
  if (text.answer) made.append(element("h2", "", "The answer"), element("div", "pair answer", cell("after", {after: "answer", role: "assistant", tokens_after: record.output_tokens}, text.answer, null)));
  return {made, keys: {ArrowRight: () => pick(Math.min(steps.length - 1, picked + 1)), ArrowLeft: () => { if (picked >= 0) pick(picked === 0 ? 0 : picked - 1); }}};
}

async function show(handle, original) {
  const dialog = part("original"), box = part("original-text");
  part("original-name").replaceChildren("The archived original ", said(handle, "bdi", "code"));
  box.textContent = "…";
  dialog.showModal();
  try {
    box.textContent = lines((await original(handle)).text);
  } catch (error) {
    box.textContent = error.status === 403 ? "Originals are shown only where the operator keeps text: records: {text: true}." : lines(error.message);
  }
}
