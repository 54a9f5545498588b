// Chat Completions, Responses and plain completions through the official Node client, streaming and not.
import assert from "node:assert/strict";
import test from "node:test";
import OpenAI from "openai";

const model = "nano";
const client = new OpenAI({ baseURL: process.env.SERVER_URL + "/v1", apiKey: "none", maxRetries: 0 });
const greedy = { model, temperature: 0, thinking: { type: "disabled" } };
const weather = {
  name: "get_weather",
  description: "Get the current weather in a city",
  parameters: { type: "object", properties: { city: { type: "string", description: "Name of the city" } }, required: ["city"] },
};
const chatTools = [{ type: "function", function: weather }];
const responsesTools = [{ type: "function", ...weather }];
const sunny = '{"temperature": 21, "condition": "sunny"}';

async function chat(request, stream) {
  if (!stream) return (await client.chat.completions.create(request)).choices[0];
  const runner = client.chat.completions.stream(request);
  return (await runner.finalChatCompletion()).choices[0];
}

async function respond(request, stream) {
  return stream ? await client.responses.stream(request).finalResponse() : await client.responses.create(request);
}

for (const stream of [false, true]) {
  const kind = stream ? "streamed" : "whole";

  test(`a ${kind} chat conversation with tools`, async () => {
    const messages = [{ role: "user", content: "What is the weather in Paris?" }];
    const first = await chat({ ...greedy, messages, tools: chatTools }, stream);
    assert.equal(first.finish_reason, "tool_calls");
    const call = first.message.tool_calls[0];
    assert.equal(call.function.name, "get_weather");
    assert.deepEqual(JSON.parse(call.function.arguments), { city: "Paris" });
    messages.push({ role: "assistant", content: first.message.content, tool_calls: first.message.tool_calls });
    messages.push({ role: "tool", tool_call_id: call.id, content: sunny });
    const second = await chat({ ...greedy, messages, tools: chatTools }, stream);
    assert.equal(second.finish_reason, "stop");
    assert.ok(second.message.content.length > 0);
    messages.push({ role: "assistant", content: second.message.content }, { role: "user", content: "What is the capital of France?" });
    const third = await chat({ ...greedy, messages, tools: chatTools }, stream);
    assert.ok(third.message.content?.length > 0 || third.message.tool_calls?.length > 0);
  });

  test(`a ${kind} tool turn of responses by its id`, async () => {
    const settings = { model, temperature: 0, reasoning: { effort: "none" }, tools: responsesTools };
    const first = await respond({ ...settings, input: "What is the weather in Paris?" }, stream);
    const call = first.output.find((item) => item.type === "function_call");
    assert.deepEqual(JSON.parse(call.arguments), { city: "Paris" });
    const input = [{ type: "function_call_output", call_id: call.call_id, output: sunny }];
    const second = await respond({ ...settings, input, previous_response_id: first.id }, stream);
    assert.equal(second.status, "completed");
    assert.ok(second.output_text.length > 0);
  });
}

test("a stream is the same text as the whole reply", async () => {
  const request = { ...greedy, messages: [{ role: "user", content: "Tell me a story about a fox." }], max_tokens: 60 };
  const whole = await client.chat.completions.create(request);
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0]?.delta?.content ?? "";
  }
  assert.equal(text, whole.choices[0].message.content);
});

test("a plain prompt is continued", async () => {
  const reply = await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, temperature: 0 });
  assert.equal(reply.usage.completion_tokens, 8);
  let text = "";
  for await (const chunk of await client.completions.create({ model, prompt: "Once upon a time", max_tokens: 8, temperature: 0, stream: true })) {
    text += chunk.choices[0]?.text ?? "";
  }
  assert.equal(text, reply.choices[0].text);
});

test("errors are the client's own", async () => {
  await assert.rejects(client.chat.completions.create({ ...greedy, messages: [] }), OpenAI.BadRequestError);
  await assert.rejects(client.models.retrieve("other"), OpenAI.NotFoundError);
});
