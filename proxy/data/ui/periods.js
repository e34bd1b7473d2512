// Costs, savings, cache reads and errors over time: by model, key, chain or policy.

import {button, count, dollars, element, empty, isLoss, isNumber, none, percent, said, table} from "./parts.js";
import {COLORS, periodBars} from "./charts.js";

const EVERY = 15000;  // sums over many requests are not asked for with each tick
const GROUPS = [["model", "Model"], ["key", "Key"], ["chain", "Chain"], ["policy", "Policy"]];
const sum = (periods, name) => {
  const known = periods.map(each => each[name]).filter(isNumber);
  return known.length ? known.reduce((all, each) => all + each, 0) : null;
};
const share = periods => {
  const all = sum(periods, "input_tokens");
  return all ? (sum(periods, "cached_tokens") || 0) / all : null;
};
// of each measure: its name, its sum over periods, and how it is written
const MEASURES = {
  usd: ["Cost, US$", periods => sum(periods, "usd"), dollars],
  usd_saved: ["Saved net, US$", periods => sum(periods, "usd_saved"), dollars],
  cached_tokens: ["Cache reads", periods => sum(periods, "cached_tokens"), count],
  errors: ["Errors", periods => sum(periods, "errors"), count],
  requests: ["Requests", periods => sum(periods, "requests"), count],
};
// a policy is summed up by its steps
const titleOf = (text, by) => by !== "policy" ? text : {Requests: "Steps", Errors: "Failed steps"}[text] || text;
const COLUMNS = [["Requests", "number"], ["Errors", "number"], ["Cost, US$", "number"], ["Saved net, US$", "number"], ["Read from caches", "number"]];

export async function periods({root, filters, get, asked, live}) {
  let by = "model", measure = "usd", shown = 0;

  function row(group, place) {
    const all = group.periods, errors = sum(all, "errors"), saved = sum(all, "usd_saved");
    const name = group.name ? said(group.name) : element("span", "dim", "none");
    return element("tr", "", element("th", "", element("span", "key " + COLORS[Math.min(place, COLORS.length - 1)], name)),
      element("td", "number", count(sum(all, "requests"))), element("td", "number" + (errors ? " bad" : ""), count(errors)),
      element("td", "number", dollars(sum(all, "usd"))), element("td", "number" + (isLoss(saved) ? " bad" : ""), dollars(saved)),
      element("td", "number", percent(share(all))));
  }

  function choice(options, chosen, choose) {
    return element("div", "switch", ...options.map(([value, text]) => {
      const made = button(text, () => { choose(value); refresh(); });
      made.ariaPressed = String(value === chosen);
      return made;
    }));
  }

  async function refresh() {
    const told = await get("admin/periods?" + asked(filters, {by})), groups = told.groups || [];
    if (told.by !== by || root.contains(getSelection().anchorNode) && String(getSelection())) return;
    const focused = root.contains(document.activeElement) ? document.activeElement.textContent : null;
    const [title, value, write] = MEASURES[measure], chart = element("div", "chart");
    root.replaceChildren(element("div", "choices", choice(GROUPS, by, next => { by = next; if (by === "policy" && measure === "usd") measure = "usd_saved"; }),
      choice(Object.entries(MEASURES).map(([name, [text]]) => [name, titleOf(text, by)]), measure, next => { measure = next; })));
    if (!groups.length) root.append(empty(Object.values(filters).some(Boolean) ? "No request fits these filters." : "No request has been recorded yet."));
    else {
      root.append(element("section", "card", element("h2", "", titleOf(title, by)), chart),
        element("div", "card", element("div", "wide-table", table("Sums", [[GROUPS.find(([name]) => name === by)[1]], ...COLUMNS.map(([text, kind]) => [titleOf(text, by), kind])], groups.map(row), "sums-by"))));
      const known = groups.some(group => value(group.periods) !== null);
      if (known) periodBars(chart, groups.map(group => new Map(group.periods.map(each => [each.start, value([each]) || 0]))), told.seconds, write, titleOf(title, by));
      else chart.append(element("p", "dim", by === "policy" ? "A policy has no cost of its own." : none));
    }
    if (focused) [...root.querySelectorAll(".switch button")].find(each => each.textContent === focused)?.focus();
    shown = Date.now();
    live("live");
  }
  await refresh();
  return {refresh: async () => { if (Date.now() - shown > EVERY) await refresh(); }};
}
