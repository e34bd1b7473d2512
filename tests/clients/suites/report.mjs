// Scenarios of one client: each prints a line `pass|fail|skip TAB name TAB detail`, which the runner reads.

import { isDeepStrictEqual, inspect } from "node:util";

export const PENSTOCK = process.env.PENSTOCK_URL;
export const UPSTREAM = process.env.SCRIPTED_URL;
export const KEY = "sk-of-the-client";
const TIMEOUT = 60_000;

let fresh = 0;
const scenarios = [];

/** A name that no other scenario uses, so that its counts at the upstream are its own. */
export function model(chain, scenario = "chat") {
  return `${chain}/${scenario}@${process.pid}-${fresh++}`;
}

/** Register a scenario; it gets the chain as its argument and runs once for each. */
export function scenario(name, body, chains = ["plain", "steps"]) {
  scenarios.push({ name, body, chains });
}

/** What the upstream remembers: `count` or `last` of a model. */
export async function upstream(what, name) {
  const answer = await fetch(`${UPSTREAM}/_${what}?model=${encodeURIComponent(name)}`);
  return answer.json();
}

/** How many requests for a model reached the upstream. */
export async function requestsFor(name) {
  return (await upstream("count", name)).count;
}

/** Whether the upstream was told within three seconds that the caller for this model left. */
export async function left(name) {
  for (let tries = 0; tries < 30; tries++) {
    if ((await upstream("count", name)).left === 1) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error("the upstream was not told within three seconds that the client left");
}

export function check(condition, text) {
  if (!condition) throw new Error(text);
}

export function equal(got, wanted) {
  check(isDeepStrictEqual(got, wanted), `got ${inspect(got, { depth: 5 })}, wanted ${inspect(wanted, { depth: 5 })}`);
}

/** The error of this class that a call must raise. */
export async function raised(kind, call) {
  let got;
  try {
    got = await call();
  } catch (error) {
    if (kind.isInstance ? kind.isInstance(error) : error instanceof kind) return error;
    throw error;
  }
  throw new Error(`${kind.name} was not raised; got ${inspect(got)}`);
}

async function limited(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("took longer than a minute")), TIMEOUT);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

export async function run(variant = "") {
  for (const { name, body, chains } of scenarios) {
    for (const chain of chains) {
      let verdict = "pass";
      let detail = "";
      try {
        await limited(body(chain));
      } catch (error) {
        verdict = "fail";
        detail = `${error?.name}: ${error?.message}`.replace(/\s+/g, " ").slice(0, 600);
      }
      console.log(`${verdict}\t${name} [${variant ? variant + ", " : ""}${chain}]\t${detail}`);
    }
  }
  process.exit(0);
}
