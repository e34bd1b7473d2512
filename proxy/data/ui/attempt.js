// Try it: a request, pasted or recorded, and a chain whose YAML is edited beside it; the difference at once.

import {button, card, count, difference, dollars, element, field, isNumber, lines, none, option, percent, plain, table, said, which} from "./parts.js";
import {sections, sideBySide} from "./changes.js";

const EXAMPLE = {model: "gpt-4o", messages: [
  {role: "system", content: "You are a helpful assistant."},
  {role: "user", content: "What is the capital of France?"},
]};
const YAML = "- window_history: {keep_turns: 4, stride: 1}\n";
const WAIT = 400;

async function copy(box, done) {
  try {
    await navigator.clipboard.writeText(box.value);
  } catch {
    box.select();  // no clipboard on this origin: the text is marked, and can be copied by hand
    document.execCommand("copy");
  }
  done.textContent = "copied";
  setTimeout(() => { done.textContent = ""; }, 2000);
}

function compared(name, tried, running) {
  const usd = each => isNumber(each.usd_estimated) ? each.usd_estimated : each.prompt_usd_after;
  const line = (text, value, number) => element("tr", "", element("th", "", text), element("td", "number", number(value(running))), element("td", "number", number(value(tried))),
    element("td", "number", isNumber(value(tried)) && isNumber(value(running)) && value(running) ? percent(value(tried) / value(running)) : none));
  const head = [["", ""], [name, "number"], ["your chain", "number"], ["of it", "number"]];
  return table("Both chains", head, [
    line("Tokens that came", each => each.tokens_before, count), line("Tokens that go", each => each.tokens_after, count), line("Prompt, US$", usd, dollars),
    line("Steps that changed it", each => each.steps.filter(step => step.verdict === "rewrite").length, count),
  ], "both");
}

export async function attempt({root, id, which: wanted, get, post, asked, isShown}) {
  const config = await get("admin/config");
  const chains = config.chains && typeof config.chains === "object" ? config.chains : {};
  const names = Object.keys(chains);
  const body = element("textarea", "code"), yaml = element("textarea", "code"), recorded = element("select"), chain = element("select"), done = element("span", "dim"), result = element("div", "result"), problem = element("p", "bad");
  Object.assign(body, {rows: 16, value: JSON.stringify(EXAMPLE, null, 2)});
  Object.assign(yaml, {rows: 16, value: names.length ? chains[names[0]] : YAML});
  problem.role = "alert";
  done.role = "status";
  recorded.append(option("", "a pasted request"));
  for (const name of names) chain.append(option(name));
  if (!names.length) chain.append(option("", "the model's own"));
  const offered = [], kept = await get("admin/requests?" + asked({}, {limit: 50})).catch(() => ({requests: []}));
  for (const record of kept.requests.filter(record => record.changes || record.text)) offered.push([record.request_id, which(record), record.request_id + " · " + record.model]);
  let chosen = id ? offered.findIndex(each => each[0] === id && (!wanted || each[1] === wanted)) : -1;
  if (id && chosen < 0) chosen = offered.push([id, wanted, id]) - 1;
  offered.forEach((each, place) => recorded.append(option(place, each[2])));
  if (id) recorded.value = chosen;
  let timer = 0, latest = 0;

  async function run() {
    const mine = latest += 1, question = {chain_yaml: yaml.value};
    if (chain.value) question.against = chain.value;
    problem.textContent = "";
    if (recorded.value) Object.assign(question, {request_id: offered[recorded.value][0]}, Object.fromEntries(new URLSearchParams(offered[recorded.value][1])));
    else {
      try { question.request = JSON.parse(body.value); } catch (error) { problem.textContent = "The request is not valid JSON: " + lines(error.message); return; }
    }
    try {
      const {explained, against} = await post("admin/explain", question);
      if (mine !== latest || !isShown()) return;
      const view = sideBySide(explained, null), told = explained.rejected;
      result.replaceChildren(
        card("The difference", told ? element("p", "bad", "The chain refuses this request: ", said(told)) : null, against ? element("div", "wide-table", compared(chain.value || "the model's own", explained, against)) : null, sections(explained)),
        card("Your chain on this request", view.made));
    } catch (error) {
      if (mine === latest && isShown()) problem.textContent = lines(error.message);
    }
  }

  // what was recorded is shown, and its own chain is the one to compare with
  async function choose() {
    body.disabled = !!recorded.value;
    if (!recorded.value) return;
    const [name, one] = offered[recorded.value], record = await get("admin/requests/" + encodeURIComponent(name) + "?" + one), text = record.text;
    body.value = text && text.before ? JSON.stringify({model: record.model, messages: text.before, ...(text.tools_before && text.tools_before.length ? {tools: text.tools_before} : {})}, null, 2)
      : "The text of this request is not kept: records: {text: true}.";
    if (record.chain && chains[record.chain] && chain.value !== record.chain) { chain.value = record.chain; yaml.value = chains[record.chain]; }
  }

  const soon = () => { clearTimeout(timer); timer = setTimeout(run, WAIT); };
  for (const box of [body, yaml]) box.addEventListener("input", soon);
  recorded.addEventListener("change", () => choose().catch(() => null).then(run));
  chain.addEventListener("change", () => { if (chains[chain.value]) yaml.value = chains[chain.value]; run(); });
  await choose().catch(() => null);
  root.append(
    element("div", "halves",
      card("Request", field("Which", recorded), field("Its JSON", body)),
      card("Chain", field("Compare with", chain), field("Steps, as YAML", yaml), element("p", "", button("Copy YAML", () => copy(yaml, done)), " ", done))),
    problem, result);
  run();
  return {};
}
