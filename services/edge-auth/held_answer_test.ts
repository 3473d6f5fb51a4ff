import assert from "node:assert/strict";
import { ApiError } from "@gateway/shared/openai/error";
import type { AnswerSink } from "./dispatch/run.ts";
import { HeldAnswer } from "./held_answer.ts";

const FAILURE = new ApiError("worker_lost", "The worker was lost.");
/** Longer than a test waits. */
const FOREVER_MS = 60_000;

function setup(holdMs: number) {
  const said: string[] = [];
  const end = Promise.withResolvers<void>();
  const answer: AnswerSink = {
    hasStarted: true,
    onPayload: (_payload, sequence) => void said.push(`payload ${sequence}`),
    onEnd: () => {
      said.push("end");
      end.resolve();
    },
    onError: (error) => {
      said.push(error.code);
      end.resolve();
    },
    onAbandoned: () => void said.push("abandoned"),
    onRestart: () => void said.push("restart"),
    onTick: (nowMs) => void said.push(`tick ${nowMs}`),
  };
  const freed = Promise.withResolvers<void>();
  const held = new HeldAnswer(answer, freed.promise, holdMs);
  return { said, held, free: freed.resolve, ended: end.promise };
}

const turn = () => new Promise<void>((resolve) => setTimeout(resolve));

Deno.test("HeldAnswer passes everything on at once but the end", async () => {
  const { said, held, free, ended } = setup(FOREVER_MS);
  assert.equal(held.hasStarted, true);
  held.onRestart();
  held.onPayload(new Uint8Array(1), 1);
  held.onTick(7);
  held.onEnd();
  await turn();
  assert.deepEqual(said, ["restart", "payload 1", "tick 7"]);
  free();
  await ended;
  assert.equal(said.at(-1), "end");
});

Deno.test("HeldAnswer holds an error too: a client may try again at once", async () => {
  const { said, held, free, ended } = setup(FOREVER_MS);
  held.onError(FAILURE);
  await turn();
  assert.deepEqual(said, []);
  free();
  await ended;
  assert.deepEqual(said, ["worker_lost"]);
});

Deno.test("HeldAnswer says the end in time when the slot is not given back", async () => {
  const { said, held, free, ended } = setup(20);
  const startedAtMs = performance.now();
  held.onEnd();
  await ended;
  const tookMs = performance.now() - startedAtMs;
  assert.ok(tookMs >= 19 && tookMs < 1_000, `${tookMs} ms`);
  free();
  await turn();
  assert.deepEqual(said, ["end"]);
});

Deno.test("HeldAnswer does not wait to forget a client that is gone", () => {
  const { said, held } = setup(FOREVER_MS);
  held.onAbandoned();
  assert.deepEqual(said, ["abandoned"]);
});
