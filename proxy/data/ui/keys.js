// The keys of Penstock: limits and spend of each, a new one, and the end of one. A secret is shown once, when it is made.

import {button, card, count, dollars, element, empty, field, none, plain, said, table} from "./parts.js";
import {COLORS, periodBars} from "./charts.js";

const EVERY = 15000, SURE = 5000, DAY = 86400;
const LIMITS = {requests_per_minute: "requests/min", tokens_per_minute: "tokens/min", tokens_per_day: "tokens/day", max_concurrent: "at once", max_output_tokens: "tokens an answer", max_n: "answers"};
// of each field of a new key: its label, its type, and what is sent of it
const FIELDS = {
  name: ["Name", "text", String], tenant: ["Tenant", "text", String],
  models: ["Models (globs, with commas)", "text", text => text.split(",").map(each => each.trim()).filter(Boolean)],
  budget_per_day: ["Budget a day, US$", "number", Number], requests_per_minute: ["Requests a minute", "number", Number],
  tokens_per_minute: ["Tokens a minute", "number", Number], expires: ["Expires (UTC), such as 2027-01-31", "text", text => text + "T00:00:00Z"],
};
const COLUMNS = [["Key"], ["Tenant"], ["Models"], ["Limits"], ["Budget a day, US$", "number"], ["Today, US$", "number"], ["This month, US$", "number"], ["Last used (UTC)"], ["Expires"], [""]];

export async function keys({root, get, post, remove, live}) {
  let shown = 0, picked = null, sure = null, timer = 0;
  const list = element("div"), result = element("div"), days = element("div"), boxes = {}, form = element("form", "choices"), maker = card("Make a key", form);
  result.role = "status";

  function row(each, place) {
    const used = each.used, limits = Object.entries(LIMITS).filter(([name]) => each.limits[name]).map(([name, text]) => count(each.limits[name]) + " " + text);
    const name = button("", () => { picked = picked === each.name ? null : each.name; refresh(); }, "step");
    name.append(element("span", "key " + COLORS[Math.min(place, COLORS.length - 1)], said(each.name)));
    name.ariaPressed = String(picked === each.name);
    const end = each.revocable ? button(sure === each.name ? "Really revoke?" : "Revoke", () => revoke(each.name), "small") : null;
    const budget = each.limits.budget_per_day, over = budget && used && used.today >= budget;
    return element("tr", picked === each.name ? "picked" : "", element("th", "", name), element("td", "", said(each.tenant)), element("td", "", said(each.models.join(", "))),
      element("td", "", limits.join(", ") || none), element("td", "number", dollars(budget)), element("td", "number" + (over ? " bad" : ""), dollars(used && used.today)),
      element("td", "number", dollars(used && used.month)), element("td", "", used ? used.last || "not in 31 days" : none),
      element("td", Date.parse(each.expires) <= Date.now() ? "bad" : "", each.expires ? plain(each.expires.slice(0, 10)) : "never"), element("td", "", end));
  }

  async function revoke(name) {
    clearTimeout(timer);
    if (sure !== name) {
      sure = name;
      timer = setTimeout(() => { sure = null; refresh(); }, SURE);
      return refresh();
    }
    sure = null;
    await change(async () => {
      const told = await remove("admin/keys/" + encodeURIComponent(name));
      result.replaceChildren(element("p", "card " + (told.in_force ? "good" : "bad"), said(name, "b"), told.in_force ? " is revoked." : " is out of the file, but it still counts: the configuration is refused (see Config)."));
    });
  }

  async function make() {
    const wanted = Object.fromEntries(Object.entries(boxes).filter(([, box]) => box.value.trim()).map(([name, box]) => [name, FIELDS[name][2](box.value.trim())]));
    await change(async () => {
      const told = await post("admin/keys", wanted), secret = element("input", "code");
      Object.assign(secret, {readOnly: true, value: told.key, size: 60, ariaLabel: "The new key"});
      secret.addEventListener("focus", () => secret.select());
      result.replaceChildren(card("The key of " + plain(told.name), secret, element("p", told.in_force ? "dim" : "bad", told.in_force ? "Copy it now: it is shown this once." : "It does not count yet: the configuration is refused (see Config). Copy it now: it is shown this once.")));
      form.reset();
      secret.focus();
    });
  }

  async function change(work) {
    try {
      await work();
    } catch (error) {
      result.replaceChildren(element("p", "card bad", plain(error.message)));
    }
    await refresh();
  }

  async function refresh() {
    const told = await get("admin/keys"), found = told.keys;
    if ([list, days].some(each => each.contains(getSelection().anchorNode)) && String(getSelection())) return;
    const focused = list.contains(document.activeElement) ? document.activeElement.textContent.replace("Really revoke?", "Revoke") : null;
    if (!found.some(each => each.name === picked)) picked = null;
    list.replaceChildren();
    days.replaceChildren();
    if (told.kind !== "keys") list.append(empty("Clients have keys of the upstreams. With auth: {kind: keys} each gets a key of Penstock, with limits and a budget."));
    else if (!found.length) list.append(empty("There is no key yet."));
    else {
      const chosen = found.map(each => picked === null || each.name === picked ? each.used && each.used.days || [] : []), chart = element("div", "chart");
      list.append(card("Spend by day" + (picked === null ? "" : " of " + plain(picked)) + ", US$", chart),
        element("div", "card", element("div", "wide-table", table("Keys", COLUMNS, found.map(row), "keys-of"))));
      if (chosen.some(used => used.length)) periodBars(chart, chosen.map(used => new Map(used.map(each => [Date.parse(each.day) / 1000, each.usd]))), DAY, dollars, "Spend by day");
      else chart.append(element("p", "dim", found[0].used ? "Not used in 31 days." : "The counts cannot be read right now."));
      if (picked !== null) {
        const rows = chosen.flat().toReversed().map(each => element("tr", "", element("th", "", each.day), element("td", "number", count(each.requests)), element("td", "number", dollars(each.usd))));
        days.append(card("Days of " + plain(picked), table("Days", [["Day (UTC)"], ["Requests", "number"], ["US$", "number"]], rows, "both")));
      }
    }
    maker.hidden = told.locked !== null;
    list.append(told.locked && told.kind === "keys" ? element("p", "dim", "Keys cannot be changed here: ", said(told.locked), ".") : "");
    if (focused) [...list.querySelectorAll("button")].find(each => each.textContent.replace("Really revoke?", "Revoke") === focused)?.focus();
    shown = Date.now();
    live("live");
  }

  for (const [name, [label, type]] of Object.entries(FIELDS)) {
    boxes[name] = element("input");
    Object.assign(boxes[name], {type, name, required: name === "name", min: type === "number" ? "0" : "", step: "any", autocomplete: "off"});
    form.append(field(label, boxes[name]));
  }
  form.append(element("button", "main", "Make"));
  form.addEventListener("submit", event => { event.preventDefault(); make(); });
  root.append(list, result, maker, days);
  await refresh();
  return {refresh: async () => { if (sure === null && Date.now() - shown > EVERY) await refresh(); }};
}
