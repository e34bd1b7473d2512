// What each policy did, saved, took and skipped.

import {count, dollars, element, empty, isLoss, none, plain, said, span, table} from "./parts.js";

const VERDICTS = ["rewrite", "keep", "skip", "fail", "reject"];

function row(each) {
  const verdicts = each.verdicts || {}, all = VERDICTS.reduce((sum, name) => sum + (verdicts[name] || 0), 0) || 1;
  const track = element("span", "track");
  for (const name of VERDICTS) {
    const piece = element("i", name);
    piece.style.width = 100 * (verdicts[name] || 0) / all + "%";
    track.append(piece);
  }
  track.ariaHidden = "true";
  const whys = element("ul", "whys", ...(each.whys || []).map(([why, times, verdict]) => element("li", "", element("span", "number dim", count(times) + "×"), " ", element("span", "dim", plain(verdict) + ": "), said(why))));
  const told = VERDICTS.filter(name => verdicts[name]).map(name => element("span", name === "fail" || name === "reject" ? "bad" : "", name + " " + count(verdicts[name])));
  return element("tr", "",
    element("td", "name", said(each.name, "b")),
    element("td", "number asked", count(each.requests)),
    element("td", "verdicts", track, element("div", "dim told", ...told.flatMap((each, place) => [place ? " · " : "", each]))),
    element("td", "number less", count(each.tokens_saved)),
    element("td", "number worth" + (isLoss(each.usd_saved) ? " bad" : ""), dollars(each.usd_saved)),
    element("td", "number median", span(each.ms_p50)), element("td", "number most", span(each.ms_p95)),
    element("td", "why", (each.whys || []).length ? whys : none));
}

const COLUMNS = [["Policy"], ["Steps", "number"], ["Verdicts"], ["Tokens saved", "number"], ["US$ saved, net", "number"], ["Median", "number"], ["95 %", "number"], ["Why, most often"]];

export async function policies({root, filters, get, asked, live}) {
  async function refresh() {
    const told = await get("admin/policies?" + asked(filters));
    const list = told.policies || [];
    const keys = VERDICTS.map(name => element("span", "key " + name, name));
    if (root.contains(getSelection().anchorNode) && String(getSelection())) return;
    root.replaceChildren(list.length ? element("div", "card", element("p", "keys", ...keys), element("div", "wide-table", table("Policies", COLUMNS, list.map(row), "policies"))) : empty(Object.values(filters).some(Boolean) ? "No chain has run in requests that fit these filters." : "No chain has run yet."));
    live("live");
  }
  await refresh();
  return {refresh};
}
