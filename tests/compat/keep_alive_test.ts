// Promise: clients read streams with keep-alive comments wherever these may stand. The
// comments have no blank line, which some clients would take for an event.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { SseParser } from "@gateway/shared/upstream/http/sse_parser";
import { event } from "../support/model_servers/model_answers.ts";

const KEEP_ALIVE = ": keep-alive\n";
const chunk = (content: string) => (
  {
    id: "x",
    object: "chat.completion.chunk",
    choices: [{ delta: { content } }],
  }
);
const BODY = KEEP_ALIVE + KEEP_ALIVE + event(chunk("Hel")) + KEEP_ALIVE +
  event(chunk("lo")) + KEEP_ALIVE + event("[DONE]");

/** The body, a byte at a time. */
function bytes(): ReadableStream<Uint8Array> {
  return ReadableStream.from(
    new TextEncoder().encode(BODY).values().map((byte) => Uint8Array.of(byte)),
  );
}

Deno.test("the official openai package reads keep-alives without blank lines", async () => {
  const client = new OpenAI({
    baseURL: "http://127.0.0.1:9/v1",
    apiKey: "none",
    fetch: () =>
      Promise.resolve(
        new Response(bytes(), {
          headers: { "content-type": "text/event-stream" },
        }),
      ),
  });
  const stream = await client.chat.completions.create({
    model: "m",
    messages: [{ role: "user", content: "a" }],
    stream: true,
  });
  const texts: unknown[] = [];
  for await (const { choices } of stream) texts.push(choices[0]?.delta.content);
  assert.deepEqual(texts, ["Hel", "lo"]);
});

Deno.test("a gateway behind a gateway reads keep-alives without blank lines", async () => {
  const events: string[] = [];
  const parser = new SseParser((data) => events.push(data));
  for await (const piece of bytes()) parser.push(piece);
  assert.deepEqual(events, [
    JSON.stringify(chunk("Hel")),
    JSON.stringify(chunk("lo")),
    "[DONE]",
  ]);
});
