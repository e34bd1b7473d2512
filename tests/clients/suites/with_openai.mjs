// The openai package for Node; the argument names the package, so that two major versions can be tested.

import { z } from "zod";
import { check, equal, KEY, left, model, PENSTOCK, raised, requestsFor, run, scenario } from "./report.mjs";

const name = process.argv[2] ?? "openai";
const openai = await import(name);
const { zodResponseFormat } = await import(`${name}/helpers/zod`);
const OpenAI = openai.default;

const City = z.object({ name: z.string(), rank: z.number().int(), rivers: z.array(z.string()) });
const LYON = { name: "Lyon", rank: 7, rivers: ["Lyon"] };
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

function client(options = {}) {
  return new OpenAI({ baseURL: PENSTOCK + "/v1", apiKey: KEY, timeout: 30_000, ...options });
}

function user(content = "hello") {
  return [{ role: "user", content }];
}

async function collected(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

scenario("chat", async (chain) => {
  const answer = await client().chat.completions.create({ model: model(chain), messages: user("good morning") });
  equal(answer.choices[0].message.content, "heard 1 messages (user), the last says: good morning");
  check(answer._request_id.startsWith("req_"), answer._request_id);
});

scenario("stream", async (chain) => {
  const chunks = await collected(
    await client().chat.completions.create({ model: model(chain), messages: user(), stream: true }),
  );
  const text = chunks.map((chunk) => chunk.choices[0].delta.content ?? "").join("");
  equal(text.trim(), "heard 1 messages (user), the last says: hello");
  check(chunks.every((chunk) => !("usage" in chunk)), "usage came unasked");
});

scenario("stream with usage", async (chain) => {
  const chunks = await collected(
    await client().chat.completions.create({
      model: model(chain),
      messages: user(),
      stream: true,
      stream_options: { include_usage: true },
    }),
  );
  equal(chunks.at(-1).usage.completion_tokens, 12);
}, ["plain", "steps", "asked"]);

scenario("stream whose usage Penstock asked for", async (chain) => {
  const chunks = await collected(
    await client().chat.completions.create({ model: model(chain), messages: user(), stream: true }),
  );
  check(chunks.every((chunk) => !("usage" in chunk)), "usage came unasked");
}, ["asked"]);

scenario("tools", async (chain) => {
  const messages = user("twice");
  const asked = { model: model(chain), tools: [WEATHER] };
  const { message, finish_reason } = (await client().chat.completions.create({ ...asked, messages })).choices[0];
  equal(finish_reason, "tool_calls");
  messages.push(message, ...message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "sun" })));
  const said = await client().chat.completions.create({ ...asked, messages });
  equal(said.choices[0].message.content, "heard 4 messages (user assistant tool tool), the last says: sun");
});

scenario("runTools helper, streaming", async (chain) => {
  const get_weather = ({ city }) => `sun in ${city}`;
  const tool = { type: "function", function: { ...WEATHER.function, function: get_weather, parse: JSON.parse } };
  const runner = client().chat.completions.runTools({
    model: model(chain),
    messages: user("weather"),
    tools: [tool],
    stream: true,
  });
  equal((await runner.finalContent()).trim(), "heard 3 messages (user assistant tool), the last says: sun in Lyon");
});

scenario("parse", async (chain) => {
  const answer = await client().chat.completions.parse({
    model: model(chain),
    messages: user(),
    response_format: zodResponseFormat(City, "city"),
  });
  equal(answer.choices[0].message.parsed, LYON);
});

scenario("stream helper", async (chain) => {
  const stream = client().chat.completions.stream({
    model: model(chain),
    messages: user(),
    response_format: zodResponseFormat(City, "city"),
    stream_options: { include_usage: true },
  });
  const final = await stream.finalChatCompletion();
  equal(final.choices[0].message.parsed, LYON);
  equal(final.usage.completion_tokens, 12);
});

scenario("overflow found by Penstock", async (chain) => {
  for (const stream of [false, true]) {
    const used = model(chain);
    const error = await raised(openai.BadRequestError, () =>
      client().chat.completions.create({ model: used, messages: user("word ".repeat(500)), stream }),
    );
    equal([error.code, error.param], ["context_length_exceeded", "messages"]);
    check(error.message.includes("maximum context length is 300 tokens"), error.message);
    equal(error.headers.get("x-should-retry"), "false");
    equal(await requestsFor(used), 0);
  }
}, ["small"]);

scenario("retries of a rate limit", async (chain) => {
  for (const maxRetries of [0, 3]) {
    const used = model(chain, "rate-limited");
    const error = await raised(openai.RateLimitError, () =>
      client({ maxRetries }).chat.completions.create({ model: used, messages: user() }),
    );
    equal(error.code, "rate_limit_exceeded");
    equal(await requestsFor(used), 1 + maxRetries);
  }
});

scenario("error in a stream", async (chain) => {
  const stream = await client().chat.completions.create({
    model: model(chain, "broken"),
    messages: user(),
    stream: true,
  });
  equal((await raised(openai.APIError, () => collected(stream))).code, "server_error");
});

scenario("leaving a stream", async (chain) => {
  const used = model(chain, "slow");
  const messages = user("a b ".repeat(60));
  for await (const _ of await client().chat.completions.create({ model: used, messages, stream: true })) break;
  await left(used);
});

scenario("leaving before the answer", async (chain) => {
  const used = model(chain, "hanging");
  await raised(openai.APIConnectionTimeoutError, () =>
    client({ maxRetries: 0, timeout: 1000 }).chat.completions.create({ model: used, messages: user() }),
  );
  await left(used);
});

scenario("responses", async (chain) => {
  equal((await client().responses.create({ model: model(chain), input: "hello" })).output_text, "heard you");
  const events = await collected(await client().responses.create({ model: model(chain), input: "hello", stream: true }));
  equal([events[0].type, events.at(-1).type], ["response.created", "response.completed"]);
});

await run();
