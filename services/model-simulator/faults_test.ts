import assert from "node:assert/strict";
import { startAsked } from "./ask_fixture.ts";
import { readControls, withoutControls } from "./controls.ts";
import { HttpError } from "./errors.ts";

Deno.test("readControls() reads phrases, several in one bracket or in many", () => {
  assert.deepEqual(
    readControls("Hi [simulator: 20 Tokens,  first token 5 ms] there"),
    { exactTokens: 20, pace: { firstTokenMs: 5 } },
  );
  assert.deepEqual(
    readControls("[simulator: cut after 3 tokens][simulator: usage missing]"),
    { break: { type: "cut", afterTokens: 3 }, isUsageMissing: true },
  );
  assert.deepEqual(readControls("[simulator 5 tokens] [other: 1]"), {});
  assert.throws(() => readControls("[simulator: 5 pieces]"), HttpError);
  const rest = withoutControls(
    "Hi [simulator: 1 token] [simulator: not closed",
  );
  assert.equal(rest, "Hi  [simulator: not closed");
});

Deno.test("an error on request has the status and body of a real server", async () => {
  await using simulator = startAsked();
  for (const status of [400, 401, 403, 404, 429, 500, 503, 529]) {
    const prompt = `[simulator: error ${status}]`;
    const response = await simulator.post({ prompt, stream: true });
    const { error } = await response.json();
    assert.equal(response.status, status);
    assert.equal(typeof error.message, "string");
    const isRetryable = [429, 503, 529].includes(status);
    assert.equal(response.headers.has("retry-after"), isRetryable);
  }
});

/** What is received before the connection is closed, and whether it is cut. */
async function received(response: Response) {
  let text = "";
  try {
    for await (const piece of response.body ?? []) {
      text += new TextDecoder().decode(piece);
    }
    return { text, isCut: false };
  } catch {
    return { text, isCut: true };
  }
}

Deno.test("an answer breaks where it was asked to", async () => {
  await using simulator = startAsked();
  const cases: [type: string, stream: boolean, status: number, end: RegExp][] =
    [
      ["fail", true, 200, /^data: {"error":{.*\n\n$/m],
      ["garbage", true, 200, /^data: <.*\n\n$/m],
      ["cut", true, 200, /(?:)/],
      ["fail", false, 500, /^{"error":/],
      ["garbage", false, 200, /^data: </],
      ["cut", false, 200, /^$/],
    ];
  for (const [type, stream, status, end] of cases) {
    const prompt = `[simulator: ${type} after 4 tokens]`;
    const response = await simulator.post({ prompt, stream });
    const { text, isCut } = await received(response);
    assert.deepEqual([response.status, isCut], [status, type === "cut"]);
    assert.match(text, end);
    const tokens = text.match(/"content":"[^"]/g)?.length ?? 0;
    if (stream && !isCut) assert.equal(tokens, 4);
    assert.ok(tokens <= 4);
    assert.equal(await simulator.seen.at(-1)?.ended, "broken");
  }
});

Deno.test("usage is missing when asked to", async () => {
  await using simulator = startAsked();
  const prompt = "[simulator: usage missing]";
  const stream_options = { include_usage: true };
  const lines = await simulator.stream({ prompt, stream_options });
  assert.equal(JSON.parse(lines.at(-2) ?? "").choices[0].finish_reason, "stop");
  const whole = await (await simulator.post({ prompt })).json();
  assert.ok(!("usage" in whole));
});

Deno.test("tokens come at the pace that was asked for", async () => {
  await using simulator = startAsked({ pace: { firstTokenMs: 10_000 } });
  const prompt =
    "[simulator: 11 tokens, first token 100 ms, 50 tokens per second]";
  const startedAt = performance.now();
  const response = await simulator.post({ prompt, stream: true });
  const reader = response.body?.getReader();
  await reader?.read();
  assert.ok(performance.now() - startedAt >= 95);
  while ((await reader?.read())?.done === false);
  assert.ok(performance.now() - startedAt >= 290);
});
