// What all views are built from: elements, numbers, times. Whatever a record says is shown as text: nothing here or in a
// view makes an element from a string.

export const part = id => document.getElementById(id);
export const none = "–";

// characters that move others or cannot be seen are shown by their numbers
const hidden = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;
const numbered = sign => "\\u" + sign.codePointAt(0).toString(16).padStart(4, "0");
export const plain = text => String(text).replace(hidden, numbered);
export const lines = text => String(text).replace(hidden, sign => sign === "\n" || sign === "\t" ? sign : numbered(sign));

export function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  for (const child of children) if (child !== null && child !== undefined) made.append(child);
  return made;
}

export const said = (text, tag = "bdi", name = "") => element(tag, name, plain(text));
export const code = text => said(text, "bdi", "code");

export function link(address, ...children) {
  const made = element("a", "", ...children);
  made.href = address;
  return made;
}

export function button(text, action, name = "") {
  const made = element("button", name, text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

export const isNumber = value => typeof value === "number" && Number.isFinite(value);
export const count = number => isNumber(number) ? (Math.round(number) || 0).toLocaleString("en").replace("-", "−") : none;
export const short = number => !isNumber(number) ? none : Math.abs(number) < 10000 ? count(number)
  : Math.abs(number) < 1e6 ? (number / 1e3).toFixed(Math.abs(number) < 1e5 ? 1 : 0) + "k" : (number / 1e6).toFixed(1) + "M";
export const dollars = usd => {
  if (!isNumber(usd)) return none;
  const text = Math.abs(usd).toFixed(Math.abs(usd) < 0.01 ? 6 : 4);
  return Number(text) === 0 ? "0" : (usd < 0 ? "−" : "") + text;
};
export const isLoss = usd => dollars(usd).startsWith("−");
export const span = ms => !isNumber(ms) ? none : ms < 1000 ? ms.toFixed(ms < 10 ? 1 : 0) + " ms" : (ms / 1000).toFixed(2) + " s";
export const percent = share => isNumber(share) ? (100 * share).toFixed(Math.abs(share) < 0.1 ? 1 : 0) + " %" : none;
export const many = (number, what) => count(number) + " " + what + (number === 1 ? "" : "s");

export function difference(before, after) {
  if (!isNumber(before) || !isNumber(after) || before === after) return "";
  return (after < before ? "−" : "+") + count(Math.abs(after - before));
}

export function time(date) {
  const when = new Date(date), today = new Date().toDateString() === when.toDateString();
  if (!date || Number.isNaN(when.getTime())) return element("span", "", none);
  const made = element("time", "", today ? when.toLocaleTimeString("en-GB") : when.toLocaleString("en-GB").replace(",", ""));
  made.dateTime = made.title = date;
  return made;
}

export function bar(share, name) {
  const made = element("span", name, element("i"));
  made.firstChild.style.width = Math.max(0, Math.min(100, 100 * share)) + "%";
  made.ariaHidden = "true";
  return made;
}

// a list of terms: [name, value, kind]; what has no value is left out
export function facts(entries, name = "facts") {
  const list = element("dl", name);
  for (const [term, value, kind] of entries) {
    if (value === null || value === undefined || value === "") continue;
    list.append(element("div", kind || "", element("dt", "", term), element("dd", "", typeof value === "object" ? value : plain(value))));
  }
  return list;
}

// columns: [name, kind]; rows: elements `tr`
export function table(caption, columns, rows, name = "") {
  const head = element("tr", "", ...columns.map(([text, kind]) => {
    const cell = element("th", kind || "", text);
    cell.scope = "col";
    return cell;
  }));
  return element("table", name, element("caption", "unseen", caption), element("thead", "", head), element("tbody", "", ...rows));
}

export function field(name, made) {
  made.spellcheck = false;
  return element("label", "field", element("span", "", name), made);
}

export function option(value, text = value) {
  const made = element("option", "", plain(text));
  made.value = value;
  return made;
}

export const card = (title, ...children) => element("section", "card", title ? element("h2", "", title) : null, ...children);
export const empty = text => element("p", "empty", text);

// ---- what is known of a request

export const failed = record => record.status >= 400 || !!record.error;
export const troubled = record => failed(record) || record.steps.some(step => step.verdict === "fail" || step.verdict === "reject");
export const changed = record => record.steps.some(step => step.verdict === "rewrite" && !step.observed);
export const isSized = record => isNumber(record.tokens_before) && isNumber(record.tokens_after);
export const toConversation = id => "#/conversations/" + encodeURIComponent(id);
// clients choose the ids of their requests, and two may choose the same: whose it was, and when it ended, tell which is meant
export const which = record => record.ended ? String(new URLSearchParams({tenant: record.tenant || "", until: record.ended})) : "";
export const address = record => encodeURIComponent(record.request_id) + (record.ended ? "/" + encodeURIComponent(which(record)) : "");
export const toRequest = record => "#/requests/" + address(record);
// each agent and each task of a session has a conversation of its own
export const named = each => [each.session || each.conversation || each.id, each.agent, each.task].filter(Boolean).map(brief).join(" · ");
export const titled = each => each.title ? plain(each.title) : named(each);
export const traces = {url: null};
export function trace(id) {
  if (!id) return null;
  if (!traces.url || !/^https?:/.test(traces.url)) return code(id);
  const made = link(traces.url.replace("{trace_id}", encodeURIComponent(id)), id);
  Object.assign(made, {target: "_blank", rel: "noopener noreferrer", className: "code"});
  return made;
}
export const brief = id => { const text = plain(id).replace(/^named-/, ""); return text.length > 16 ? text.slice(0, 12) + "…" : text; };

export function verdict(step) {
  const made = said(step.observed ? "would " + step.verdict : step.verdict, "span", "verdict");
  if (["keep", "rewrite", "skip", "fail", "reject"].includes(step.verdict)) made.classList.add(step.verdict);
  return made;
}

// the tokens of a turn by how the provider took them; where it reported nothing, as they were expected
export function parts(record) {
  const all = isNumber(record.input_tokens) ? record.input_tokens : isNumber(record.tokens_after) ? record.tokens_after : 0;
  const reported = isNumber(record.input_tokens);
  const read = Math.min(all, (reported ? record.cached_tokens : record.cached_expected) || 0);
  const written = Math.min(all - read, record.written_tokens || 0);
  return {read, written, fresh: Math.max(0, all - read - written), output: record.output_tokens || 0};
}

// the same in US dollars, where prices are known; null without
export function costs(record) {
  const prices = record.prices, tokens = parts(record);
  if (!prices || !isNumber(prices.input)) return null;
  const at = (name, price) => tokens[name] * (isNumber(price) ? price : prices.input) / 1e6;
  return {read: at("read", prices.read), written: at("written", prices.write), fresh: at("fresh", prices.input),
    output: isNumber(prices.output) ? at("output", prices.output) : 0};
}
