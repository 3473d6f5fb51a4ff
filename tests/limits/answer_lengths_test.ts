// Promise: edges learn together how long the answers of a model are, and hold that of a
// budget for one without `max_tokens`.
import assert from "node:assert/strict";
import { AnswerLengths } from "../../services/edge-auth/limits/budgets/answer_lengths.ts";
import { edgeLink } from "../../services/edge-auth/limits/lone_edge_fixture.ts";
import { nanosToHold } from "../../services/edge-auth/limits/rate.ts";
import { silentLog } from "@gateway/shared/process/log";
import { startRedisWorld } from "../support/limits/admission_fixture.ts";
import { createRecordingLog } from "../support/recording_log.ts";

Deno.test("what one edge has seen, another expects; also on the next day, not on the one after", async () => {
  await using world = await startRedisWorld();
  let nowMs = Date.UTC(2026, 10, 28, 23, 59);
  const edge = async () =>
    new AnswerLengths({
      redis: await edgeLink(world),
      now: () => nowMs,
      log: silentLog,
    });
  const [one, two] = [await edge(), await edge()];
  for (let n = 1; n <= 19; n += 1) one.saw("a:b", 100);
  await one.share();
  await two.share();
  assert.equal(two.expected("a:b"), null, "too few");
  for (let n = 1; n <= 1_000; n += 1) two.saw("a:b", n);
  await two.share();
  await one.share();
  for (const each of [one, two]) {
    const tokens = each.expected("a:b") ?? assert.fail();
    assert.ok(tokens >= 950 && tokens <= 950 * 1.2, `${tokens}`);
    assert.equal(each.expected("other"), null);
  }
  nowMs += 2 * 60_000;
  await one.share();
  assert.ok(one.expected("a:b") !== null, "the next day");
  nowMs += 86_400_000;
  await one.share();
  assert.equal(one.expected("a:b"), null);
});

Deno.test("what Redis refuses is told once, and written when it takes it", async () => {
  const commands: string[] = [];
  let isRefused = true;
  const log = createRecordingLog();
  const lengths = new AnswerLengths({
    redis: {
      state: "ready",
      command(command) {
        if (isRefused) return Promise.reject(new Error("NOPERM"));
        commands.push(command.join(" "));
        return Promise.resolve([]);
      },
    },
    now: () => Date.UTC(2026, 10, 28),
    log,
  });
  lengths.saw("m", 64);
  for (let n = 0; n < 2; n += 1) await lengths.share();
  const events = log.lines.map(({ event }) => event);
  assert.deepEqual(events, ["answer_lengths_not_shared"]);
  isRefused = false;
  await lengths.share();
  assert.equal(commands[0], "HINCRBY lengths:20261128 24:m 1");
});

Deno.test("for an answer without a bound, what was learned is held: at least 256 tokens, at most the model's", () => {
  const rate = { table: "t", prices: { input: 0, output: 1_000_000 } };
  const estimate = {
    promptTokens: 10,
    totalTokens: 1_034,
    bounds: { promptTokensMax: 1_000, completionTokensMax: 1_000 },
    units: null,
  };
  const cases = [
    { name: "nothing is learned", learned: null, open: 1, tokens: 1_024 },
    { name: "learned", learned: 700, open: 1, tokens: 700 },
    { name: "for each answer", learned: 700, open: 3, tokens: 2_100 },
    { name: "short answers", learned: 3, open: 1, tokens: 256 },
    { name: "long ones", learned: 99_999, open: 1, tokens: 4_000 },
    { name: "a bound was set", learned: 700, open: 0, tokens: 1_024 },
  ];
  for (const { name, learned, open, tokens } of cases) {
    const openAnswers = open === 0
      ? undefined
      : { count: open, tokensMax: 4_000 };
    const request = openAnswers ? { ...estimate, openAnswers } : estimate;
    assert.equal(nanosToHold(request, rate, learned), tokens, name);
  }
});
