// The openai library for Node: completions, chat, responses, models; plain and streamed.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 1 });
const messages = [{ role: "user", content: "Tell me a story" }];

const models = await client.models.list();
assert.deepEqual(models.data.map((model) => model.id), ["demo"]);

const text = await client.completions.create({ model: "demo", prompt: "Once", max_tokens: 8 });
assert.ok(text.choices[0].text);

const asked = { model: "demo", messages, max_completion_tokens: 12, seed: 1 };
const whole = await client.chat.completions.create(asked);
let said = "";
let usage = null;
const stream = await client.chat.completions.create({
  ...asked, stream: true, stream_options: { include_usage: true },
});
for await (const chunk of stream) {
  said += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(said, whole.choices[0].message.content);
assert.ok(usage.total_tokens > 0);

const question = { model: "demo", input: "Tell me a story", max_output_tokens: 12, seed: 1 };
const response = await client.responses.create(question);
assert.ok(response.output_text);
let streamed = "";
let last = null;
for await (const event of await client.responses.create({ ...question, stream: true })) {
  if (event.type === "response.output_text.delta") streamed += event.delta;
  last = event;
}
assert.equal(last.type, "response.completed");
assert.equal(streamed, response.output_text);

await assert.rejects(
  client.chat.completions.create({ ...asked, max_completion_tokens: -7 }), OpenAI.BadRequestError);
await assert.rejects(
  new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
