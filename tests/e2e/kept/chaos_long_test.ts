// Promise: whatever is killed, edges, workers or one of three NATS servers, readers
// that come and go see exactly the bytes of the answer, in order. It runs once: again
// only if its worker was lost before the first token, either because an edge gives it
// to another worker, or because its client was told that it has failed, and has sent
// it again. Each answer is charged once, what has failed before its first token is not,
// and nothing is charged for an edge that was lost.
import assert from "node:assert/strict";
import { keptAnswerKey, leaseKey } from "@gateway/shared/keys/record";
import { amountOf } from "../../support/amount.ts";
import type { TestKey } from "../../support/gateway/limited.ts";
import {
  type UsageCounted,
  usageCounted,
} from "../../support/limits/admission_fixture.ts";
import { print } from "../../support/process.ts";
import { seededRandom, seedsOr } from "../../support/seeded_random.ts";
import { sleep, waitFor } from "../../support/wait_for.ts";
import { ChaosClient, type ChaosEnd } from "./chaos_client.ts";
import {
  type ChaosRig,
  startChaosRig,
  TOKENS,
  type Victim,
  wordsFor,
} from "./chaos_rig.ts";

const REQUESTS = amountOf({ usual: 60, full: 1_000 });
/** Requests at a time. */
const CLIENTS = 8;
const VICTIMS: readonly Victim[] = ["edge", "worker", "nats"];
/** A NATS server that was killed has to catch up: one is lost at a time. */
const PAUSE_MS = 5_000;
/** An edge settles what another one has left within this, leases included. */
const SETTLED_MS = 180_000;

/** Each kill of an edge may hold up some clients for a minute. */
const KILLS_MAX = amountOf({ usual: 6, full: 60 });

/** The model server counts this many of each prompt. */
const PROMPT_TOKENS = 1;
/** Errors with which an answer may end when a process that it needs is killed. */
const LOSSES = ["worker_lost", "keep_failed", "server_shutdown"];

/** What became of a request, and of which key it was. */
interface PromptEnd {
  readonly key: TestKey;
  readonly end: ChaosEnd;
}

async function readAll(
  rig: ChaosRig,
  random: () => number,
): Promise<PromptEnd[]> {
  const all: PromptEnd[] = [];
  let next = 0;
  await Promise.all(Array.from({ length: CLIENTS }, async () => {
    while (next < REQUESTS) {
      const prompt = `p${next}`;
      next += 1;
      const key = await rig.addKey();
      const { edges } = rig;
      const client = new ChaosClient({ key: key.value, edges, random });
      all.push({ key, end: await client.read(prompt) });
    }
  }));
  return all;
}

/** Whether nothing of a request is reserved any more, and its answer has ended. */
async function isSettled({ world }: ChaosRig, { key, end }: PromptEnd) {
  const record = keptAnswerKey(key.ownerId, end.id.slice("req_".length));
  const state = await world.command("HGET", record, "state");
  const leases = await world.command("ZRANGE", leaseKey(key), "0", "-1");
  // Marks of requests that were charged as lost are no leases.
  const held = Array.isArray(leases) && leases.some((id) => !/^!/.test(id));
  return state !== "running" && !held;
}

async function allSettled(rig: ChaosRig, all: readonly PromptEnd[]) {
  await waitFor(async () => {
    const settled = await Promise.all(all.map((each) => isSettled(rig, each)));
    return settled.every((isOver) => isOver);
  }, {
    what: "all to be settled",
    timeoutMs: SETTLED_MS,
    intervalMs: 1_000,
  });
}

/** Each reader has exactly the bytes of its answer, or a beginning and an allowed error. */
function assertBytes({ prompt, text, code }: ChaosEnd): void {
  const whole = wordsFor(prompt).join("");
  if (code === null) return assert.equal(text, whole);
  assert.ok(LOSSES.includes(code), `${prompt}: ${code}`);
  assert.ok(whole.startsWith(text), text);
}

/**
 * A request was charged once: what its model server counted. What has failed before its
 * first token is counted as a request, but has no tokens.
 */
function assertCharged({ end }: PromptEnd, usage: UsageCounted): void {
  const { prompt, code, refusals } = end;
  const what = `${prompt} ${code} ${refusals}: ${JSON.stringify(usage)}`;
  const { requests, lostRequests, promptTokens, completionTokens } = usage;
  assert.equal(lostRequests, 0, `charged as lost: ${what}`);
  assert.ok(requests <= 1 + refusals.length, `counted again: ${what}`);
  if (code !== null) {
    return assert.ok(completionTokens <= TOKENS, `too much: ${what}`);
  }
  assert.equal(completionTokens, TOKENS, what);
  assert.equal(promptTokens, PROMPT_TOKENS, what);
}

for (const seed of seedsOr([1])) {
  Deno.test(`every kept answer arrives whole under kills (seed ${seed})`, async () => {
    await using rig = await startChaosRig();
    const random = seededRandom(seed);
    let isOver = false;
    const kills = { edge: 0, worker: 0, nats: 0 };
    const killing = (async () => {
      for (let round = 0; round < KILLS_MAX && !isOver; round += 1) {
        await sleep(PAUSE_MS);
        const victim = VICTIMS[round % VICTIMS.length] ?? "edge";
        await rig.kill(victim, Math.floor(random() * 6));
        kills[victim] += 1;
      }
    })();
    const all = await readAll(rig, random).catch((error: unknown) => {
      print(rig.faults().join("\n"));
      throw error;
    }).finally(() => {
      isOver = true;
    });
    await killing;
    assert.deepEqual(rig.faults(), []);
    const ends = all.map(({ end }) => end);
    ends.forEach(assertBytes);
    const complete = ends.filter(({ code }) => code === null).length;
    const losses = countOf(ends.flatMap(({ code }) => code ?? []));
    // Only the kills of workers end answers.
    const lost = ends.length - complete;
    assert.ok(lost <= kills.worker * CLIENTS, JSON.stringify(losses));
    await allSettled(rig, all);
    let charged = 0;
    let requests = 0;
    for (const each of all) {
      const usage = await usageCounted(rig.world, each.key);
      assertCharged(each, usage);
      if (usage.completionTokens > 0) charged += 1;
      requests += usage.requests;
    }
    const runs = ends.map(({ prompt }) => rig.asked.get(prompt) ?? 0);
    // Without having been told to its client, a run is repeated by its edge alone.
    const untold = ends.map(({ refusals }, at) =>
      Math.max(0, (runs[at] ?? 0) - 1 - refusals.length)
    );
    assert.ok(sumOf(untold) <= rig.repeats(), `${sumOf(untold)} further runs`);
    const cuts = sumOf(ends.map((end) => end.cuts));
    assert.ok(cuts > ends.length, `only ${cuts} cuts`);
    print(JSON.stringify({
      complete,
      of: ends.length,
      losses,
      cuts,
      kills,
      runs: sumOf(runs),
      refusals: countOf(ends.flatMap(({ refusals }) => refusals)),
      repeats: rig.repeats(),
      charged,
      requests,
    }));
  });
}

const sumOf = (counts: readonly number[]): number =>
  counts.reduce((all, each) => all + each, 0);

/** How often each word is among these. */
const countOf = (words: readonly string[]): Record<string, number> =>
  Object.fromEntries(
    Map.groupBy(words, (each) => each).entries().map((
      [word, all],
    ) => [word, all.length]),
  );
