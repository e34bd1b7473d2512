// The running configuration, and a check of a changed one before it is put in place.

import {button, card, code, count, element, facts, lines, many, plain, said, time} from "./parts.js";

export function findings(told) {
  const made = element("div", "findings");
  for (const [list, name] of [[told.errors || [], "error"], [told.warnings || [], "warning"]]) {
    for (const text of list) made.append(element("p", name === "error" ? "bad" : "warn", element("b", "", name + " "), lines(text)));
  }
  if (!made.childElementCount) made.append(element("p", "good", "It is valid, and nothing looks like a mistake."));
  return made;
}

export function numbered(text) {
  const made = element("ol", "source code");
  for (const line of String(text).replace(/\n$/, "").split("\n")) made.append(element("li", "", lines(line)));
  return made;
}

export async function config({root, get, post}) {
  const told = await get("admin/config");
  const text = typeof told.text === "string" ? told.text : "";
  const box = element("textarea", "code"), result = element("div");
  box.value = text;
  box.rows = Math.max(8, Math.min(40, text.split("\n").length + 1));
  box.spellcheck = false;
  box.ariaLabel = "A configuration to check";
  result.role = "status";
  let timer = 0;

  async function check() {
    clearTimeout(timer);
    try {
      result.replaceChildren(findings(await post("admin/check", {yaml: box.value})));
    } catch (error) {
      result.replaceChildren(element("p", "bad", plain(error.message)));
    }
  }
  box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(check, 500); });

  const refused = told.refused;
  root.append(
    facts([["Version", code(told.version)], ["In force since", time(told.since)], ["Workers", count(told.workers.length + 1)], ["Needs a restart", told.needs_restart ? plain(told.needs_restart.join(", ")) : "nothing"]], "sums"),
    refused ? element("p", "card bad", "A newer configuration was refused" + (refused.when ? ", " : ""), refused.when ? time(refused.when) : null, ": ", said(refused.error || refused.where)) : "",
    card("The running file", element("p", "dim", "Secrets are masked."), text ? numbered(text) : element("p", "dim", "This server does not show its text.")),
    card("Check a change", element("p", "dim", "Nothing here is put in force: edit the file on the server, and it is reloaded."), box, element("p", "", button("Check", check, "main")), result));
  return {};
}
