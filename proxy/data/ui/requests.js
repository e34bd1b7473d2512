// The list of recent requests as they come, and one request before and after its chain.

import {address, bar, button, card, changed, code, count, difference, dollars, element, empty, facts, failed, isLoss, isNumber, isSized, link, named, none, part, percent, plain, said, span, table, time, toConversation, toRequest, brief, trace, troubled} from "./parts.js";
import {sections, sideBySide} from "./changes.js";

const MOST = 200, OVERLAP = 10000;
const byEnd = (a, b) => a.ended < b.ended ? 1 : a.ended > b.ended ? -1 : 0;
const identity = record => [record.request_id, record.ended, record.tenant].join("\n");

function ofWindow(record) {
  if (!record.window || !isNumber(record.tokens_after)) return element("td", "window dim", none);
  const share = record.tokens_after / record.window;
  const cell = element("td", "window", bar(share, share > 1 ? "share over" : share > 0.8 ? "share near" : "share"), percent(share));
  cell.title = count(record.tokens_after) + " of " + count(record.window) + " usable tokens";
  return cell;
}

function tokens(record) {
  if (!isSized(record)) return element("td", "tokens number dim", none);
  const isSame = record.tokens_before === record.tokens_after;
  return element("td", "tokens number", isSame ? null : element("span", "dim", count(record.tokens_before) + " → "), count(record.tokens_after));
}

function answered(record) {
  const cell = element("td", "status " + (failed(record) ? "bad" : troubled(record) ? "warn" : "good"), String(record.status));
  if (record.error) cell.append(" ", said(record.error));
  else if (!failed(record) && troubled(record)) cell.append(" step failed");
  return cell;
}

function rowOf(record) {
  const open = link(toRequest(record), plain(record.request_id));
  open.className = "open id";
  open.title = plain(record.request_id);
  return element("tr", "row request",
    element("td", "ended dim", time(record.ended)), element("td", "name", open),
    element("td", "where", said(record.model), " ", element("span", "dim", said(record.upstream), record.chain ? " · " : "", record.chain ? said(record.chain) : null)),
    answered(record), element("td", "spent number", span(record.milliseconds)), tokens(record), ofWindow(record),
    element("td", "cost number" + (isNumber(record.usd) ? "" : " dim"), dollars(record.usd)));
}

function sums(records) {
  const total = name => records.reduce((sum, record) => sum + (record[name] || 0), 0);
  const sized = records.filter(isSized), before = sized.reduce((sum, record) => sum + record.tokens_before, 0);
  const removed = before - sized.reduce((sum, record) => sum + record.tokens_after, 0);
  const times = records.map(record => record.milliseconds).sort((a, b) => a - b), bad = records.filter(troubled).length;
  return facts([
    ["Requests", count(records.length)],
    ["With a problem", count(bad), bad ? "bad" : ""],
    ["Median time", times.length ? span(times[times.length >> 1]) : none],
    ["Tokens in", count(before)],
    ["Removed by chains", removed ? count(removed) + " (" + percent(removed / before) + ")" : sized.length ? "0" : none],
    ["Cost, US$", records.some(record => isNumber(record.usd)) ? dollars(total("usd")) : none],
    ["Saved by chains, US$", records.some(record => isNumber(record.usd_saved)) ? dollars(total("usd_saved")) : none, isLoss(total("usd_saved")) ? "bad" : ""],
  ], "sums");
}

const COLUMNS = [["Ended"], ["Request"], ["Model, upstream, chain"], ["Status"], ["Time", "number"], ["Tokens", "number"], ["Of the window"], ["US$", "number"]];

export async function requests({root, filters, get, asked, offer, live}) {
  const rows = new Map();  // by identity: {record, row}
  let newest = "", shared = false;
  const head = element("div"), made = table("Recent requests, the newest first", COLUMNS, []), body = made.tBodies[0];
  const search = element("input"), which = element("select"), told = element("span", "dim"), scope = element("p", "dim"), nothing = empty("");
  Object.assign(search, {id: "search", type: "search", placeholder: "Search this list, or a request id and Enter", maxLength: 200, autocomplete: "off", spellcheck: false});
  search.ariaLabel = "Search the list; Enter opens the request of this id";
  which.ariaLabel = "Which requests";
  told.role = "status";
  for (const [value, text] of [["all", "All requests"], ["changed", "Changed by the chain"], ["problem", "With a problem"]]) {
    const option = element("option", "", text);
    option.value = value;
    which.append(option);
  }
  const tools = element("form", "seek", search, which, element("button", "", "Open id"), told);
  tools.addEventListener("submit", event => { event.preventDefault(); if (search.value.trim()) location.hash = toRequest({request_id: search.value.trim()}); });
  search.addEventListener("input", show);
  which.addEventListener("change", show);
  root.append(head, tools, element("div", "card list", made, nothing), scope);

  function matches(record) {
    const words = search.value.trim().toLowerCase();
    if (which.value === "problem" && !troubled(record) || which.value === "changed" && !changed(record)) return false;
    return !words || [record.request_id, record.model, record.upstream, record.chain, record.status, record.error, record.tenant, record.conversation, record.trace_id, record.config]
      .some(value => value !== null && value !== undefined && String(value).toLowerCase().includes(words));
  }

  // a row stays the same element for as long as its request is listed, so that focus and selection stay
  function take(fresh) {
    const sorted = [...fresh.map(record => [identity(record), {record, row: rowOf(record)}]), ...rows].sort(([, a], [, b]) => byEnd(a.record, b.record));
    for (const [, gone] of sorted.splice(MOST)) gone.row.remove();
    rows.clear();
    let place = body.firstChild;
    for (const [name, kept] of sorted) {
      rows.set(name, kept);
      if (kept.row === place) place = place.nextSibling;
      else body.insertBefore(kept.row, place);
    }
  }

  function show() {
    const listed = [];
    for (const {record, row} of rows.values()) {
      row.hidden = !matches(record);
      if (!row.hidden) listed.push(record);
    }
    head.replaceChildren(sums(listed));
    told.textContent = listed.length === rows.size ? "" : listed.length + " of " + rows.size;
    made.hidden = !listed.length;
    nothing.hidden = !!listed.length;
    nothing.textContent = rows.size ? "None of the listed requests fits." : "No requests yet.";
    scope.textContent = shared ? "The last requests of all replicas that share this state." : "The last requests of this server, with all its workers. Other replicas have their own.";
  }

  async function refresh() {
    // a worker that was slow may still bring what ended a little earlier
    const more = newest ? {since: new Date(Date.parse(newest) - OVERLAP).toISOString()} : {};
    const {since, ...rest} = filters;
    const answer = await get("admin/requests?" + asked(newest ? rest : filters, {limit: MOST, ...more}));
    shared = answer.shared;
    const fresh = answer.requests.filter(record => !rows.has(identity(record)));
    for (const record of answer.requests) if (record.ended > newest) newest = record.ended;
    if (fresh.length) take(fresh);
    offer("tenants", fresh.map(record => record.tenant));
    offer("models", fresh.map(record => record.model));
    offer("chains", fresh.map(record => record.chain));
    show();
    live("live");
  }

  await refresh();
  return {refresh};
}

// ---- one request

export async function request({root, id, which, get}) {
  const path = "admin/requests/" + encodeURIComponent(id), record = await get(path + "?" + which);
  const compared = sideBySide(record, record.text ? handle => get(path + "/archive/" + encodeURIComponent(handle) + "?" + which) : null);
  const of = record.conversation ? element("p", "path", link("#/conversations", "Conversations"), " / ", link(toConversation(record.conversation), named(record)), " / ", record.turn ? "turn " + record.turn : code(brief(record.request_id)))
    : element("p", "path", link("#/requests", "Requests"), " / ", code(brief(record.request_id)));
  const broken = record.prefix_broken;
  root.append(...[of,
    facts([
      ["Status", element("span", failed(record) ? "bad" : troubled(record) ? "warn" : "good", record.status + (record.error ? " " : ""), record.error ? said(record.error) : null)],
      ["Time", span(record.milliseconds)],
      ["Tokens", isSized(record) ? count(record.tokens_before) + (record.tokens_after === record.tokens_before ? "" : " → " + count(record.tokens_after)) : none],
      ["Read from the cache", isNumber(record.cached_tokens) && record.input_tokens ? count(record.cached_tokens) + " (" + percent(record.cached_tokens / record.input_tokens) + ")" : none],
      ["Answer", isNumber(record.output_tokens) ? count(record.output_tokens) + " tokens" : none],
      ["Cost, US$", dollars(record.usd)],
      ["Saved, net US$", dollars(record.usd_saved), isLoss(record.usd_saved) ? "bad" : ""],
    ], "sums"),
    broken ? element("p", "card warn", "✕ Prefix break" + (isNumber(broken.message) ? " at message " + count(broken.message) : " in the tools") + ": " + count(broken.lost) + " tokens that the provider had in its cache were sent as new ones", broken.step ? element("span", "", ", moved by ", said(broken.step)) : null, ".") : null,
    card("Tokens by section", sections(record) || element("p", "dim", "Nobody counted this request.")),
    card("The chain", compared.made),
    record.text ? null : element("p", "dim hint", "Sizes and shapes only: the text of messages is not kept. ", element("code", "", "records: {text: true}"), " keeps it."),
    card("All of it", facts([
      ["Request id", code(record.request_id), "wide"], ["Ended", time(record.ended)], ["Route", record.route], ["Model", record.model], ["Upstream", record.upstream], ["Chain", record.chain],
      ["Stream", record.stream ? "yes" : "no"], ["Ignored fields", Array.isArray(record.ignored) ? record.ignored.join(", ") : record.ignored],
      ["Prompt, expected US$", isNumber(record.usd_estimated) ? dollars(record.usd_estimated) + (isNumber(record.usd_unchanged) ? "; unchanged " + dollars(record.usd_unchanged) : "") : null],
      ["Reported prompt", isNumber(record.input_tokens) ? count(record.input_tokens) + " tokens" : null],
      ["Written to the cache", isNumber(record.written_tokens) ? count(record.written_tokens) + " tokens" : null],
      ["Expected from the cache", isNumber(record.cached_expected) ? count(record.cached_expected) + " tokens" : null],
      ["Key", record.tenant && code(record.tenant), "wide"], ["Conversation", record.conversation && code(record.conversation), "wide"], ["Session", record.session && code(record.session), "wide"], ["Agent", record.agent && code(record.agent)], ["Task", record.task && code(record.task)],
      ["Configuration", code(record.config)], ["Trace", trace(record.trace_id), "wide"],
    ]), record.text ? element("p", "", link("#/try/" + address(record), "Try another chain on this request")) : null)].filter(part => part !== null));
  return {keys: compared.keys};
}
