/** Phrases that control the simulator, and its faults. */
import { ApiError } from "@gateway/shared/openai/error";
import assert from "node:assert/strict";
import { bytesOf, recording, startTestSimulator } from "../ask_fixture.ts";
import { readControls, withoutControls } from "./controls.ts";

Deno.test("readControls() reads phrases, several in one bracket or in many", () => {
  assert.deepEqual(
    readControls("Hi [simulator: 20 Tokens,  first token 5 ms] there"),
    { exactTokens: 20, firstTokenMs: 5 },
  );
  assert.deepEqual(
    readControls("[simulator: cut after 3 tokens][simulator: usage missing]"),
    { break: { type: "cut", afterTokens: 3 }, isUsageMissing: true },
  );
  assert.deepEqual(readControls("[simulator 5 tokens] [other: 1]"), {});
  assert.throws(() => readControls("[simulator: 5 pieces]"), ApiError);
  const rest = withoutControls(
    "Hi [simulator: 1 token] [simulator: not closed",
  );
  assert.equal(rest, "Hi  [simulator: not closed");
});

/** A request of each kind, with a phrase for the simulator. */
const KINDS = {
  "/chat/completions": (content: string, stream: boolean) => ({
    model: "neutral-3.7-plus",
    stream,
    messages: [{ role: "user", content }],
    stream_options: stream ? { include_usage: true } : undefined,
  }),
  "/images/generations": (phrase: string, stream: boolean) => ({
    model: "simulated-image-1",
    size: "96x64",
    partial_images: 1,
    stream,
    prompt: `A fox ${phrase}`,
  }),
  "/audio/transcriptions": (prompt: string, stream: boolean, file: File) => ({
    model: "simulated-transcription-1",
    file,
    prompt,
    stream,
  }),
};
/**
 * A phrase and whether the answer is a stream; its status and text, and whether it is
 * cut.
 */
/** Orders to the simulator, and what comes of them. */
interface Case {
  phrase: string;
  stream: boolean;
  status: number;
  /** What is received, as Latin-1. */
  text: RegExp;
  isCut: boolean;
}

const CASES: readonly Case[] = [
  {
    phrase: "error 401",
    stream: true,
    status: 401,
    text: /"invalid_api_key"/,
    isCut: false,
  },
  {
    phrase: "error 429",
    stream: false,
    status: 429,
    text: /"rate_limit_error"/,
    isCut: false,
  },
  {
    phrase: "error 529",
    stream: true,
    status: 529,
    text: /"overloaded_error"/,
    isCut: false,
  },
  {
    phrase: "cut after 1 token",
    stream: true,
    status: 200,
    text: /^((event: .*\n)?data: .*\n\n)*$/,
    isCut: true,
  },
  {
    phrase: "cut after 0 tokens",
    stream: false,
    status: 200,
    text: /^$/,
    isCut: true,
  },
  {
    phrase: "fail after 1 token",
    stream: true,
    status: 200,
    text: /data: {"error":.*\n\n$/,
    isCut: false,
  },
  {
    phrase: "fail after 1 token",
    stream: false,
    status: 500,
    text: /^{"error":/,
    isCut: false,
  },
  {
    phrase: "garbage after 1 token",
    stream: true,
    status: 200,
    text: /data: <html>.*\n\n$/,
    isCut: false,
  },
  {
    phrase: "garbage after 1 token",
    stream: false,
    status: 200,
    text: /<html>502/,
    isCut: false,
  },
];

for (const [path, bodyOf] of Object.entries(KINDS)) {
  Deno.test(`${path} fails where it is asked to`, async () => {
    await using simulator = startTestSimulator();
    const file = await recording(simulator);
    for (const { phrase, stream, status, text, isCut } of CASES) {
      const body = bodyOf(`[simulator: ${phrase}]`, stream, file);
      const response = await simulator.post(path, body);
      const received = await bytesOf(response);
      assert.deepEqual([response.status, received.isCut], [status, isCut]);
      const shown = received.bytes.toString("latin1");
      assert.match(shown, text);
      const isRetryable = [429, 529].includes(status);
      assert.equal(response.headers.has("retry-after"), isRetryable);
      if (path === "/chat/completions" && !isCut) {
        const tokens = shown.match(/"content":"[^"]/g)?.length ?? 0;
        assert.equal(tokens, stream && status === 200 ? 1 : 0);
      }
      const outcome = phrase.startsWith("error") ? "refused" : "broken";
      assert.equal(await simulator.requests.at(-1)?.outcome, outcome);
    }
    for (const stream of [true, false]) {
      const body = bodyOf("[simulator: usage missing]", stream, file);
      const { bytes } = await bytesOf(await simulator.post(path, body));
      assert.ok(!bytes.includes('"usage":{'));
    }
  });
}

Deno.test("tokens come at the pace that was asked for", async () => {
  await using simulator = startTestSimulator({
    pace: { firstTokenMs: 10_000 },
  });
  const prompt =
    "[simulator: 11 tokens, first token 100 ms, 50 tokens per second]";
  const startedAt = performance.now();
  const response = await simulator.chat({ prompt, stream: true });
  const reader = response.body?.getReader();
  await reader?.read();
  assert.ok(performance.now() - startedAt >= 95);
  while ((await reader?.read())?.done === false);
  assert.ok(performance.now() - startedAt >= 290);
});
