// OpenAI's JavaScript client against a running server: chat, completions, streams, stop, seed, errors.
//
// node client.mjs http://127.0.0.1:PORT/v1; the package is looked for in the folder NODE_MODULES.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.NODE_MODULES}/`);
const { OpenAI } = require("openai");
const { version } = JSON.parse(readFileSync(`${process.env.NODE_MODULES}/openai/package.json`, "utf8"));

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "unused", maxRetries: 0, timeout: 120_000 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "Name the months." }];
const chat = (more = {}) => client.chat.completions.create({ model, messages, max_tokens: 48, ...more });
const joined = async (stream) => {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? chunk.choices[0]?.text ?? "";
  return text;
};

const whole = await chat();
const text = whole.choices[0].message.content;
assert.equal(whole.object, "chat.completion");
assert.ok(text.length > 0 && ["stop", "length"].includes(whole.choices[0].finish_reason));
assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
assert.ok(whole.usage.nfe > 0 && whole.usage.rows > 0);
assert.equal((await client.models.retrieve(model)).id, model);

assert.equal(await joined(await chat({ stream: true })), text);
let last = null;
for await (const chunk of await chat({ stream: true, stream_options: { include_usage: true } })) last = chunk;
assert.deepEqual(last.choices, []);
assert.deepEqual(last.usage, whole.usage);
const runner = client.chat.completions.stream({ model, messages, max_tokens: 48 });
assert.equal(await runner.finalContent(), text);

const stop = text.slice(text.length / 2, text.length / 2 + 3);
const cut = text.slice(0, text.indexOf(stop));
for (const form of [stop, ["never there", stop]]) {
  const stopped = await chat({ stop: form });
  assert.equal(stopped.choices[0].message.content, cut);
  assert.equal(stopped.choices[0].finish_reason, "stop");
  assert.equal(await joined(await chat({ stop: form, stream: true })), cut);
}

const drawn = [await chat({ seed: 7, temperature: 0.9 }), await chat({ seed: 7, temperature: 0.9 })];
assert.equal(drawn[0].choices[0].message.content, drawn[1].choices[0].message.content);
assert.ok((await chat({ recipe: "fast", threshold: 0.8 })).usage.nfe < whole.usage.nfe);

const raw = { model, prompt: "2 + 3 =", max_tokens: 8 };
const completed = await client.completions.create(raw);
assert.equal(await joined(await client.completions.create({ ...raw, stream: true })), completed.choices[0].text);

// A client that breaks off leaves the server well.
const abort = new AbortController();
await assert.rejects(async () => {
  const stream = await client.chat.completions.create({ model, messages, max_tokens: 512, stream: true }, { signal: abort.signal });
  for await (const _ of stream) { abort.abort(); throw new Error("broke off"); }
});

for (const [wrong, kind, param] of [
  [{ tools: [{ type: "function", function: { name: "f", parameters: {} } }] }, OpenAI.BadRequestError, "tools"],
  [{ model: "gpt-4o" }, OpenAI.NotFoundError, "model"],
  [{ response_format: { type: "json_object" } }, OpenAI.BadRequestError, "response_format"],
  [{ foo: 1 }, OpenAI.BadRequestError, "foo"],
]) {
  await assert.rejects(() => chat(wrong), (error) => error instanceof kind && error.param === param);
}
console.log(`openai ${version}: ok`);
