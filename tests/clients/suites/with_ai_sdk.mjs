// The AI SDK: ai with @ai-sdk/openai-compatible.

import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";
import { check, equal, KEY, left, model, PENSTOCK, raised, requestsFor, run, scenario } from "./report.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const City = z.object({ name: z.string(), rank: z.number().int() });
const LYON = { name: "Lyon", rank: 7 };
const tools = {
  get_weather: tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `sun in ${city}`,
  }),
};

const penstock = createOpenAICompatible({
  name: "penstock",
  baseURL: PENSTOCK + "/v1",
  apiKey: KEY,
  includeUsage: true,
  supportsStructuredOutputs: true,
});

scenario("generateText", async (chain) => {
  const answer = await generateText({ model: penstock(model(chain)), prompt: "good morning" });
  equal(answer.text, "heard 1 messages (user), the last says: good morning");
  equal([answer.finishReason, answer.usage.outputTokens], ["stop", 12]);
});

scenario("streamText", async (chain) => {
  const answer = streamText({ model: penstock(model(chain)), system: "Be brief.", prompt: "hello" });
  const parts = [];
  for await (const part of answer.textStream) parts.push(part);
  equal(parts.join("").trim(), "heard 2 messages (system user), the last says: hello");
  check(parts.length > 3, `the text came in ${parts.length} parts`);
  equal((await answer.usage).outputTokens, 12);
}, ["plain", "steps", "asked"]);

scenario("@ai-sdk/openai, chat and Responses API", async (chain) => {
  const openai = createOpenAI({ baseURL: PENSTOCK + "/v1", apiKey: KEY });
  const chat = await generateText({ model: openai.chat(model(chain)), prompt: "hello" });
  equal(chat.text, "heard 1 messages (user), the last says: hello");
  equal((await generateText({ model: openai(model(chain)), prompt: "hello" })).text, "heard you");
});

scenario("tools", async (chain) => {
  const answer = await generateText({
    model: penstock(model(chain)),
    prompt: "the weather, twice",
    tools,
    stopWhen: stepCountIs(3),
  });
  equal(answer.text, "heard 4 messages (user assistant tool tool), the last says: sun in Lyon");
});

scenario("tools, streaming", async (chain) => {
  const answer = streamText({ model: penstock(model(chain)), prompt: "weather", tools, stopWhen: stepCountIs(3) });
  equal((await answer.text).trim(), "heard 3 messages (user assistant tool), the last says: sun in Lyon");
  equal((await answer.steps).length, 2);
});

scenario("generateObject", async (chain) => {
  equal((await generateObject({ model: penstock(model(chain)), schema: City, prompt: "a city" })).object, LYON);
});

scenario("streamObject", async (chain) => {
  const answer = streamObject({ model: penstock(model(chain)), schema: City, prompt: "a city" });
  let last;
  for await (const partial of answer.partialObjectStream) last = partial;
  equal(last, LYON);
});

scenario("overflow found by Penstock", async (chain) => {
  const used = model(chain);
  const error = await raised(APICallError, () =>
    generateText({ model: penstock(used), prompt: "word ".repeat(500) }),
  );
  equal([error.statusCode, error.isRetryable, error.data.error.code], [400, false, "context_length_exceeded"]);
  equal(await requestsFor(used), 0);
}, ["small"]);

scenario("retries of a rate limit", async (chain) => {
  const used = model(chain, "rate-limited");
  try {
    await generateText({ model: penstock(used), prompt: "hello", maxRetries: 2 });
    check(false, "no error");
  } catch (error) {
    equal(error.reason, "maxRetriesExceeded");
  }
  equal(await requestsFor(used), 3);
});

scenario("leaving a stream", async (chain) => {
  const used = model(chain, "slow");
  const leaving = new AbortController();
  const prompt = "a b ".repeat(60);
  const answer = streamText({ model: penstock(used), prompt, abortSignal: leaving.signal, onError: () => {} });
  for await (const _ of answer.textStream) {
    leaving.abort();
    break;
  }
  await left(used);
});

await run();
