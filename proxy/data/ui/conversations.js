// The list of conversations, and one of them as a timeline.

import {bar, button, card, changed, code, costs, count, dollars, element, empty, facts, isLoss, isNumber, link, many, none, parts, percent, plain, said, brief, named, titled, table, time, toConversation, toRequest, troubled} from "./parts.js";
import {markName, marksOf, sparkline, timeline} from "./charts.js";

const MOST = 50;
const total = (list, name) => list.reduce((sum, each) => sum + (each[name] || 0), 0);
const known = (list, name) => list.some(each => isNumber(each[name]));

function problems(found) {
  const told = [["errors", "error"], ["refused", "refused"], ["failed_steps", "failed step"], ["prefix_breaks", "prefix break"]]
    .filter(([name]) => found && found[name]).map(([name, text]) => name === "refused" ? count(found[name]) + " refused" : many(found[name], text));
  return told.length ? element("span", found.errors || found.refused || found.failed_steps ? "bad" : "warn", told.join(", ")) : element("span", "dim nothing", "none");
}

function sums(list, more) {
  const saved = total(list, "usd_saved");
  return facts([
    ["Conversations", count(list.length) + (more ? "+" : "")],
    ["Turns", count(total(list, "turns"))],
    ["Tokens in", count(total(list, "input_tokens"))],
    ["Read from the cache", total(list, "input_tokens") ? percent(total(list, "cached_tokens") / total(list, "input_tokens")) : none],
    ["Cost, US$", known(list, "usd") ? dollars(total(list, "usd")) : none],
    ["Saved by chains, US$", known(list, "usd_saved") ? dollars(saved) : none, isLoss(saved) ? "bad" : ""],
    ["With a problem", count(list.filter(each => Object.values(each.problems || {}).some(Boolean)).length)],
  ], "sums");
}

function row(each) {
  const open = link(toConversation(each.id), titled(each));
  open.className = each.title ? "open" : "open code";
  open.title = plain(each.id);
  const chart = element("div", "spark");
  const made = element("tr", "row",
    element("td", "name", open, element("div", "dim", each.title ? [named(each), ...(each.keys || [])].join(" · ") + " · " : (each.keys || []).map(key => key + " · ").join(""), ...(each.models || []).flatMap((model, place) => [place ? ", " : "", said(model)]), each.chains && each.chains.length ? " · " : "", said((each.chains || []).join(", ")))),
    element("td", "ended dim", time(each.ended)),
    element("td", "turns number", count(each.turns)),
    element("td", "size", chart),
    element("td", "last number", count((each.tokens || []).at(-1))),
    element("td", "cost number", dollars(each.usd)),
    element("td", "saved number " + (isLoss(each.usd_saved) ? "bad" : each.usd_saved > 0 ? "good" : "dim"), dollars(each.usd_saved)),
    element("td", "status", problems(each.problems)));
  made.dataset.stamp = each.ended + "/" + each.turns;
  sparkline(chart, each.tokens || [], each.tokens_unchanged);
  return made;
}

const COLUMNS = [["Conversation"], ["Last turn"], ["Turns", "number"], ["Context size"], ["Tokens now", "number"], ["US$", "number"], ["Saved, US$", "number"], ["Problems"]];

export async function conversations({root, filters, get, asked, offer, live}) {
  const rows = new Map();
  const body = element("div", "card list"), head = element("div"), more = button("Older", older);
  const made = table("Conversations, the last one first", COLUMNS, []);
  let list = [], rest = false, off = false;

  const read = extra => get("admin/conversations?" + asked(filters, {limit: MOST, ...extra}));

  function show() {
    const tbody = made.tBodies[0];
    let at = tbody.firstChild;
    for (const each of list) {
      let shown = rows.get(each.id);
      if (!shown || shown.dataset.stamp !== each.ended + "/" + each.turns) {
        const fresh = row(each);
        if (shown) {
          const focused = shown.contains(document.activeElement);
          if (shown === at) at = shown.nextSibling;
          shown.replaceWith(fresh);
          if (focused) fresh.querySelector(".open").focus();
        }
        rows.set(each.id, shown = fresh);
      }
      if (shown === at) at = at.nextSibling;
      else tbody.insertBefore(shown, at);
    }
    for (const [id, shown] of rows) if (!list.some(each => each.id === id)) { shown.remove(); rows.delete(id); }
    head.replaceChildren(sums(list, rest));
    made.hidden = !list.length;
    more.hidden = !rest;
    body.querySelector(".empty")?.remove();
    if (!list.length) body.append(empty(off ? "This server keeps no records: records: off." : Object.values(filters).some(Boolean) ? "No conversation fits these filters." : "No conversations yet. Send a request to this server, and it is listed here."));
    offer("tenants", list.map(each => each.tenant));
    offer("models", list.flatMap(each => each.models || []));
    offer("chains", list.flatMap(each => each.chains || []));
  }

  async function refresh() {
    const told = await read();
    off = told.on === false;
    const fresh = new Set(told.conversations.map(each => each.id));
    // what older pages brought stays below
    const kept = list.length > MOST ? list.slice(told.conversations.length).filter(each => !fresh.has(each.id)) : [];
    list = [...told.conversations, ...kept];
    if (!kept.length) rest = told.more;
    show();
    live("live");
  }

  async function older() {
    const told = await read({before: list.at(-1).ended});
    const listed = new Set(list.map(each => each.id));
    list = [...list, ...told.conversations.filter(each => !listed.has(each.id))];
    rest = told.more;
    show();
  }

  body.append(made, more);
  root.append(head, body);
  await refresh();
  return {refresh};
}

// ---- one conversation

function turnRow(record, marks, first) {
  const open = link(toRequest(record), String(record.turn || first));
  open.className = "open";
  const tokens = parts(record), prompt = tokens.read + tokens.written + tokens.fresh;
  return element("tr", "row",
    element("td", "name", open),
    element("td", "ended dim", time(record.ended)),
    element("td", "tokens number", changed(record) ? element("span", "dim", count(record.tokens_before) + " → ") : null, count(record.tokens_after ?? prompt)),
    element("td", "window", prompt ? bar(tokens.read / prompt, "share") : null, prompt ? percent(tokens.read / prompt) : none),
    element("td", "out number", count(record.output_tokens)),
    element("td", "cost number", dollars(record.usd)),
    element("td", "saved number " + (isLoss(record.usd_saved) ? "bad" : "dim"), dollars(record.usd_saved)),
    element("td", "status" + (troubled(record) ? " bad" : ""), marks.length ? marks.map(({mark}) => markName(mark)).join(", ") : element("span", "dim nothing", none)));
}

// what a provider had in its cache and got again at full price: by whom, and what that cost
function breaks(records) {
  const broken = records.filter(record => record.prefix_broken);
  if (!broken.length) return "";
  const cost = ({prices, prefix_broken: {lost}}) => prices && isNumber(prices.input) && isNumber(prices.read) ? lost * (prices.input - prices.read) / 1e6 : null;
  const rows = broken.map(record => {
    const {at, message, lost, step} = record.prefix_broken, open = link(toRequest(record), String(record.turn));
    return element("tr", "",
      element("td", "name", open), element("td", "", step ? said(step) : "the client"),
      element("td", "dim", isNumber(message) ? "message " + count(message) : "the tools", ", behind " + count(at) + " tokens"),
      element("td", "number", count(lost)), element("td", "number", dollars(cost(record))));
  });
  return element("div", "card list breaks", element("h2", "", "Who broke the cache"), table("Breaks of the cached prefix", [["Turn"], ["By"], ["From"], ["Tokens lost", "number"], ["US$", "number"]], rows));
}

const TURNS = [["Turn"], ["Ended"], ["Prompt tokens", "number"], ["Read from the cache"], ["Answer", "number"], ["US$", "number"], ["Saved, US$", "number"], ["What happened"]];

export async function conversation({root, id, get, keep, live}) {
  const path = "admin/conversations/" + encodeURIComponent(id);
  let money = sessionStorage.getItem("money") === "true", stamp = "", told;

  function switchTo(next) {
    money = next;
    sessionStorage.setItem("money", String(next));
    stamp = "";
    show();
  }

  function show() {
    const records = told.requests || [], now = told.ended + "/" + records.length;
    if (stamp === now) return;
    stamp = now;
    const marks = marksOf(records), chart = element("div", "timeline");
    const priced = records.some(record => costs(record));
    const shown = money && priced;
    const unit = element("div", "switch", ...[["Tokens", false], ["US$", true]].map(([text, value]) => {
      const made = button(text, () => switchTo(value));
      made.ariaPressed = String(shown === value);
      made.disabled = value && !priced;
      if (made.disabled) made.title = "The prices of this model are not known.";
      return made;
    }));
    const prompt = told.input_tokens || 0;
    root.replaceChildren(
      element("p", "path", link("#/conversations", "Conversations"), " / ", code(named(told))),
      told.title ? said(told.title, "h2", "named") : "",
      facts([
        ["Turns", count(told.turns)],
        ["Tokens in", count(told.input_tokens)],
        ["Read from the cache", prompt ? percent((told.cached_tokens || 0) / prompt) : none],
        ["Answers", isNumber(told.output_tokens) ? count(told.output_tokens) + " tokens" : none],
        ["Cost, US$", dollars(told.usd)],
        ["Unchanged, US$", dollars(told.usd_unchanged)],
        ["Saved, net US$", dollars(told.usd_saved), isLoss(told.usd_saved) ? "bad" : ""],
        ["Problems", problems(told.problems)],
      ], "sums"),
      card("", element("div", "title", element("h2", "", "A bar a turn"), unit), chart),
      breaks(records),
      element("div", "card list", table("The turns", TURNS, records.map((record, place) => turnRow(record, marks[place], place + 1)))),
      card("", facts([
        ["Conversation", code(told.id), "wide"], ["Session", told.session && code(told.session), "wide"], ["Agent", told.agent && code(told.agent), "wide"], ["Task", told.task && code(told.task), "wide"], ["Key", told.tenant && code(told.tenant), "wide"],
        ["Keys", (told.keys || []).join(", ")], ["Models", (told.models || []).join(", ")], ["Chains", (told.chains || []).join(", ")], ["Began", time(told.started)], ["Last turn", time(told.ended)],
      ]), element("p", "actions", "Export ", ...[["jsonl", "JSONL for replay"], ["csv", "costs as CSV"]].map(([kind, text]) =>
        button(text, () => keep(path + "/export?format=" + kind, "conversation-" + brief(told.id).replace(/\W/g, "") + "." + kind))))));
    if (records.length) timeline(chart, records, marks, {money: shown, open: record => { location.hash = toRequest(record); }});
    else chart.append(empty("No request of it is kept any more."));
  }

  async function refresh() {
    told = await get(path);
    // what somebody reads in the chart or the table does not move under them
    if (!root.contains(document.activeElement) || !stamp) show();
    live(stamp === told.ended + "/" + (told.requests || []).length ? "live" : "held, a newer turn came");
  }

  await refresh();
  return {refresh, keys: {m: () => switchTo(!money)}};
}
