// Vercel's ai with @ai-sdk/openai-compatible and @ai-sdk/openai: text, streams, objects, tools.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, streamText, tool } from "ai";
import { z } from "zod";

const [url, apiKey] = process.argv.slice(2);
const compatible = createOpenAICompatible({
  name: "unpaced", baseURL: `${url}/v1`, apiKey, includeUsage: true, supportsStructuredOutputs: true,
});
const openai = createOpenAI({ baseURL: `${url}/v1`, apiKey });
const models = {
  compatible: compatible("demo"),
  "compatible completions": compatible.completionModel("demo"),
  "openai chat": openai.chat("demo"),
  "openai responses": openai.responses("demo"),
  "openai completions": openai.completion("demo"),
};
const failed = ({ error }) => { throw error; };

for (const [name, model] of Object.entries(models)) {
  const asked = { model, prompt: "Tell me a story", maxOutputTokens: 12, maxRetries: 0 };
  const whole = await generateText(asked);
  assert.ok(whole.text, name);
  assert.ok(whole.usage.outputTokens > 0, name);
  const stream = streamText({ ...asked, onError: failed });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.ok(text, name);
  assert.ok((await stream.usage).outputTokens > 0, name);
  assert.ok(["stop", "length"].includes(await stream.finishReason), name);
}

const schema = z.object({ kind: z.enum(["cat", "dog"]), tame: z.boolean() });
for (const name of ["compatible", "openai chat", "openai responses"]) {
  const made = await generateObject({
    model: models[name], schema, prompt: "Make one up", maxOutputTokens: 400, maxRetries: 0,
  });
  assert.ok(["cat", "dog"].includes(made.object.kind), name);
}

const look = tool({
  description: "Look at a thing",
  inputSchema: z.object({ thing: z.enum(["cat", "dog"]) }),
  execute: async ({ thing }) => `a ${thing}`,
});
const turns = [
  { role: "user", content: "Look at the cat" },
  { role: "assistant", content: [
    { type: "tool-call", toolCallId: "t1", toolName: "look", input: { thing: "cat" } }] },
  { role: "tool", content: [
    { type: "tool-result", toolCallId: "t1", toolName: "look", output: { type: "text", value: "a cat" } }] },
];
for (const name of ["compatible", "openai chat", "openai responses"]) {
  const answer = await generateText({
    model: models[name], messages: turns, tools: { look }, maxOutputTokens: 12, maxRetries: 0,
  });
  assert.ok(answer.finishReason, name);
}

for (const name of ["compatible", "openai chat", "openai responses"]) {
  const stream = streamText({
    model: models[name], prompt: "Look", tools: { look }, toolChoice: "required",
    maxOutputTokens: 400, maxRetries: 0, onError: failed,
  });
  const [call] = await stream.toolCalls;
  assert.equal(call.toolName, "look", name);
  assert.ok(["cat", "dog"].includes(call.input.thing), name);
  const [result] = await stream.toolResults;
  assert.equal(result.output, `a ${call.input.thing}`, name);
}
