// Compare: two chains of the configuration on recorded conversations, played on the server without an upstream.

import {button, card, count, dollars, element, empty, field, isLoss, isNumber, link, many, option, plain, said, table, time, titled, toConversation} from "./parts.js";

const NEWEST = 10, MOST = 50;
const COLUMNS = [["Conversation"], ["Chain"], ["Requests", "number"], ["Prompt tokens", "number"], ["Cache reads", "number"], ["Cost, US$", "number"], ["Saved net, US$", "number"],
  ["Values seen", "number"], ["By handle", "number"], ["Lost", "number"], ["Removed", "number"], ["Shortened", "number"]];
const nameOf = chain => chain ? said(chain) : element("span", "dim", "no chain");

// the rows of a conversation, or of all: one for each chain
function pair(name, sides, chains, error) {
  return sides.map((side, place) => {
    const head = element("th", "", place ? "" : name), chain = element("td", "chain", nameOf(chains[place]));
    if (error) return element("tr", "", head, chain, Object.assign(element("td", "bad", place ? "" : said(error)), {colSpan: COLUMNS.length - 2}));
    const saved = isNumber(side.usd) ? side.usd_unchanged - side.usd : null, {values, messages} = side;
    const numbers = [count(side.requests), count(side.tokens.after), count(side.cached.tokens), dollars(side.usd)];
    const rest = [count(values.visible) + " of " + count(values.needed), count(values.retrievable), count(values.lost), count(messages.removed), count(messages.shortened)];
    return element("tr", "", head, chain, ...numbers.map(each => element("td", "number", each)), element("td", "number" + (isLoss(saved) ? " bad" : ""), dollars(saved)),
      ...rest.map((each, nth) => element("td", "number" + (nth === 2 && values.lost ? " bad" : ""), each)));
  });
}

export async function compare({root, get, post, remove, asked, live}) {
  const {chains} = await get("admin/config"), names = Object.keys(chains || {});
  const {conversations, text} = await get("admin/conversations?" + asked({}, {limit: MOST}));
  if (!text) {
    root.append(empty("Records hold no text, so there is nothing to play. Set records: {text: true} in the configuration: from then on requests are recorded whole, and operators can read them."));
    return {};
  }
  const first = element("select"), second = element("select"), newest = element("input"), result = element("div", "result"), problem = element("p", "bad");
  for (const box of [first, second]) box.append(option("", "no chain"), ...names.map(name => option(name)));
  first.value = names.includes("default") ? "default" : names[0] || "";
  Object.assign(newest, {type: "number", min: 1, max: MOST, value: NEWEST});
  problem.role = "alert";
  const boxes = conversations.map(each => Object.assign(element("input"), {type: "checkbox", value: each.id}));
  const list = element("ul", "picks", ...conversations.map((each, place) => element("li", "", element("label", "", boxes[place], " ", said(titled(each)), " ", element("span", "dim", many(each.turns, "turn"), " · ", time(each.ended))))));
  const titles = new Map(conversations.map(each => [each.id, titled(each)]));
  const start = button("Compare", begin, "main"), stop = button("Cancel", () => act(() => remove("admin/replays")));
  let shown = "";

  async function begin() {
    const ids = boxes.filter(box => box.checked).map(box => box.value);
    await act(() => post("admin/replays", {chain: first.value, against: second.value, ...(ids.length ? {ids} : {newest: Number(newest.value)})}));
  }

  async function act(work) {
    problem.textContent = "";
    try { await work(); } catch (error) { problem.textContent = plain(error.message); }
    await refresh();
  }

  async function refresh() {
    const told = await get("admin/replays"), runs = told.state === "running";
    start.disabled = runs;
    stop.hidden = !runs;
    live("live");
    if (JSON.stringify(told) === shown) return;
    shown = JSON.stringify(told);
    if (told.state === "none") { result.replaceChildren(); return; }
    const progress = element("progress"), without = told.without_text ? many(told.without_text, "conversation") + " left out: their text is not kept. " : "";
    Object.assign(progress, {max: told.requests || 1, value: told.played || 0, ariaLabel: "Requests that are played"});
    const head = element("p", told.state === "failed" ? "bad" : "dim", nameOf(told.chain), " against ", nameOf(told.against), ": ", told.state === "failed" ? said(told.error) : told.state + ", " + count(told.played) + " of " + many(told.requests, "request") + ". " + without);
    const made = [head, runs ? progress : null].filter(Boolean);
    if (told.report) {
      const of = [told.chain, told.against], rows = told.report.conversations.flatMap(each => pair(link(toConversation(each.id), titles.get(each.id) || plain(each.id)), each.sides, of, each.error));
      made.push(element("div", "wide-table", table("The comparison", COLUMNS, [...pair("All", told.report.total, of), ...rows], "both compared-chains")),
        element("p", "dim", "The answers are the recorded ones, and nothing was sent. Guards run without a chain, too. Costs are of prompts, with the provider's cache; values are identifiers, numbers and paths that the answers needed: seen in what is sent, behind the handle of an original, or lost. Messages are removed or shortened."));
    }
    result.replaceChildren(card("The comparison", ...made));
  }

  root.append(card("Compare two chains", element("div", "choices", field("Chain", first), field("Compare with", second), field("Newest conversations", newest), start, stop), problem,
    conversations.length ? element("details", "", element("summary", "", "or choose conversations"), list) : element("p", "dim", "No conversation has been recorded yet.")), result);
  await refresh();
  return {refresh};
}
