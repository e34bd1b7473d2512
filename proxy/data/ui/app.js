// The frame of the page: who may see it, which view is shown, filters, keys, and what is asked of the server when.

import {button, element, part, plain, said, code, time, traces} from "./parts.js";
import {conversation, conversations} from "./conversations.js";
import {request, requests} from "./requests.js";
import {policies} from "./policies.js";
import {periods} from "./periods.js";
import {keys as allKeys} from "./keys.js";
import {config} from "./config.js";
import {attempt} from "./attempt.js";
import {compare} from "./compare.js";

const EVERY = 2000;
const FILTERS = ["since", "tenant", "model", "chain", "words", "status"];
// of each view: what shows all, what shows one, and whether it knows the filters
const views = {
  conversations: {all: conversations, one: conversation, filters: true},
  requests: {all: requests, one: request, filters: true},
  policies: {all: policies, filters: true},
  periods: {all: periods, filters: true},
  keys: {all: allKeys},
  config: {all: config},
  try: {all: attempt, one: attempt},
  compare: {all: compare},
};
let key = sessionStorage.getItem("key") || "";
let current = {name: "", keys: {}, refresh: null};
let paused = false, busy = false, visited = 0, answered = null;

// ---- what the server says

class Denied extends Error {}

async function ask(method, path, body) {
  if (/[^\x20-\xff]/.test(key)) throw new Denied();  // no header can carry it
  const headers = key ? {authorization: "Bearer " + key} : {};
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {method, headers, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body)});
  } catch {
    throw Object.assign(new Error("The server does not answer."), {away: true});
  }
  if (answer.status === 401) throw new Denied();
  answered = new Date();
  const told = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(told.error && told.error.message || "status " + answer.status), {status: answer.status, told});
  return told;
}

const get = path => ask("GET", path);

// a file goes through a link that is gone at once: a plain link could not send the key
async function save(path, name) {
  const answer = await fetch(path, {headers: key ? {authorization: "Bearer " + key} : {}, cache: "no-store"});
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Error(told.error && told.error.message || "status " + answer.status);
  }
  const address = URL.createObjectURL(await answer.blob()), anchor = document.createElement("a");
  Object.assign(anchor, {href: address, download: name}).click();
  URL.revokeObjectURL(address);
}

const keep = (path, name) => save(path, name).catch(report);
const post = (path, body) => ask("POST", path, body);
const remove = path => ask("DELETE", path);

function report(error) {
  if (error instanceof Denied) signIn(!!key);
  else if (error.away) part("note").textContent = error.message + (answered ? " What is shown is of " + answered.toLocaleTimeString("en-GB") + "." : "");
  else part("note").textContent = plain(error.message);
}

// ---- who may see it

function signIn(wrong) {
  part("login").hidden = false;
  part("page").hidden = part("nav").hidden = part("pause").hidden = part("leave").hidden = true;
  part("live").textContent = part("config").textContent = "";
  part("note").textContent = wrong ? "This is not the admin key." : "";
  if (wrong) part("key").select();
  if (document.activeElement !== part("key")) part("key").focus();
}

function signOut() {
  key = "";
  sessionStorage.clear();
  part("view").replaceChildren();
  for (const id of ["tenants", "models", "chains"]) part(id).replaceChildren();
}

function signedIn() {
  part("login").hidden = true;
  part("key").value = "";
  part("page").hidden = part("nav").hidden = false;
  part("leave").hidden = !key;
}

// ---- the state of the server, at the foot of the page and above it where something is wrong

function headline(told) {
  const workers = [told, ...told.workers], versions = new Set(workers.map(worker => worker.version));
  traces.url = told.trace_url;
  part("config").replaceChildren("Configuration ", said(told.version, "code"), " since ", time(told.since), workers.length > 1 ? " · " + workers.length + " workers" : "");
  const notes = [];
  if (told.refused) notes.push("A newer configuration was refused: " + plain(told.refused.error || told.refused.where));
  if (told.needs_restart) notes.push("Needs a restart: " + plain(told.needs_restart.join(", ")) + ".");
  if (versions.size > 1) notes.push("The workers do not all run the same configuration.");
  part("note").textContent = notes.join(" ");
}

async function tick() {
  if (busy) return;
  busy = true;
  const mine = key;
  try {
    const told = await get("admin/config");
    if (mine !== key) return;  // signed out meanwhile
    const entered = part("page").hidden;
    signedIn();
    headline(told);
    if (entered) await enter();
    else if (current.refresh && !paused) await current.refresh();
  } catch (error) {
    if (mine !== key) return;
    if (error.status === 404 && key) signOut();  // this server asks for no key, and takes who has one for a client
    else report(error);
  } finally {
    busy = false;
  }
}

// ---- which view is shown: #/conversations?model=..., #/conversations/ID, #/requests/ID, #/requests/ID/WHICH of that id; #ID is a request's id

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function place() {
  const raw = location.hash.slice(1);
  if (raw && !raw.startsWith("/")) history.replaceState(null, "", "#/requests/" + raw);
  const [path, query] = (location.hash.slice(2) || "conversations").split("?");
  const [name, ...rest] = path.split("/"), [id = "", which = ""] = rest.map(decoded);
  return {name: views[name] ? name : "conversations", id, which, query: new URLSearchParams(query || "")};
}

const filtersOf = query => Object.fromEntries(FILTERS.map(name => [name, query.get(name) || ""]));

// what the server is asked with: `since` is a number of seconds on the page, and a date to the server
function asked(filters, more = {}) {
  const query = new URLSearchParams(more);
  for (const [name, value] of Object.entries(filters)) {
    if (value && name === "since") query.set("since", new Date(Date.now() - 1000 * value).toISOString());
    else if (value) query.set(name, value);
  }
  return query.toString();
}

// the values that filters offer, collected from what was shown
function offer(id, values) {
  const list = part(id), known = new Set([...list.options].map(option => option.value));
  for (const value of new Set(values)) {
    if (!value || known.has(value) || known.size > 200) continue;
    const option = document.createElement("option");
    option.value = value;
    list.append(option);
  }
}

async function enter() {
  const {name, id, which, query} = place(), view = views[name], filters = filtersOf(query);
  const root = element("div", "view " + name), mine = current = {name, root, keys: {}, refresh: null};
  visited += 1;
  for (const anchor of part("nav").children) {
    const target = anchor.hash.slice(2).split("?")[0];
    anchor.hash = "#/" + target + (String(query) ? "?" + query : "");
    if (target === name) anchor.ariaCurrent = "page";
    else anchor.removeAttribute("aria-current");
  }
  part("filter").hidden = !!id || !view.filters;
  for (const field of part("filters").elements) if (field.name) field.value = filters[field.name];
  part("live").textContent = "";
  part("pause").hidden = true;
  part("view").replaceChildren(root);
  scrollTo(0, 0);
  if (document.activeElement === document.body || !document.activeElement.checkVisibility()) part("view").focus({preventScroll: true});
  try {
    const made = await (id ? view.one || view.all : view.all)({
      root, id, which, filters, get, post, remove, keep, asked, offer,
      isShown: () => current === mine,
      live: text => { if (current === mine) part("live").textContent = text; },
    });
    if (current !== mine) return;
    Object.assign(mine, made);
    part("pause").hidden = !mine.refresh;
  } catch (error) {
    if (current !== mine) return;
    if (!(error instanceof Denied) && !error.away) root.replaceChildren(said(error.message, "p", "bad missing"), button("Back", back));
    else report(error);
  }
}

function back() {
  if (visited > 1) history.back();
  else location.hash = "#/" + current.name;
}

// ---- hands

function move(by) {
  const openers = [...part("view").querySelectorAll("tr.row:not([hidden]) .open")];
  const at = openers.indexOf(document.activeElement);
  const next = openers[at < 0 ? 0 : Math.max(0, Math.min(openers.length - 1, at + by))];
  if (next) next.focus();
}

function pause() {
  if (!current.refresh) return;
  paused = !paused;
  part("pause").ariaPressed = String(paused);
  part("pause").textContent = paused ? "Go on" : "Pause";
  part("live").textContent = paused ? "paused" : "";
  if (!paused) tick();
}

const keys = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1), p: pause,
  "/": () => {
    part("filter").open = true;
    (part("search") || part("filters").elements.model).focus();
  },
  Escape: () => { if (place().id) back(); },
};

document.addEventListener("keydown", event => {
  if (part("page").hidden || part("original").open || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    else if (!(event.key === "ArrowDown" && event.target.id === "search")) return;
  }
  const action = Object.hasOwn(current.keys, event.key) ? current.keys[event.key] : Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (!action || event.target.closest("summary, .chart, dialog") && event.key !== "Escape" && !event.target.matches(".open")) return;
  event.preventDefault();
  action();
});
// a click anywhere in a row opens it, unless text was marked there
part("view").addEventListener("click", event => {
  const row = event.target.closest("tr.row");
  if (row && !event.target.closest("a, button, summary") && !String(getSelection())) row.querySelector(".open").click();
});
part("filters").addEventListener("change", () => {
  const query = new URLSearchParams();
  for (const field of part("filters").elements) if (field.name && field.value.trim()) query.set(field.name, field.value.trim());
  location.hash = "#/" + current.name + (String(query) ? "?" + query : "");
});
part("filters").addEventListener("reset", () => { location.hash = "#/" + current.name; });
part("filters").addEventListener("submit", event => event.preventDefault());
part("login").addEventListener("submit", event => {
  event.preventDefault();
  key = part("key").value.trim();
  sessionStorage.setItem("key", key);
  busy = false;
  tick();
});
part("pause").addEventListener("click", pause);
part("leave").addEventListener("click", () => { signOut(); part("page").hidden = true; tick(); });
addEventListener("hashchange", () => { if (!part("page").hidden) enter(); });
if (innerWidth < 700) part("filter").open = false;
tick();
setInterval(() => { if (!document.hidden && part("login").hidden) tick(); }, EVERY);
