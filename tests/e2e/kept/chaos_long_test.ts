// Promise: whatever is killed, edges, workers or one of three NATS servers, readers
// that come and go see exactly the bytes of the answer, in order; it runs once, unless
// a worker was lost before its first token; each request is charged once.
import assert from "node:assert/strict";
import { ownerUsageKey } from "@gateway/shared/keys/record";
import { amountOf } from "../../support/amount.ts";
import { print } from "../../support/process.ts";
import { seededRandom, seedsOr } from "../../support/seeded_random.ts";
import { sleep, waitFor } from "../../support/wait_for.ts";
import { ChaosClient, type ChaosEnd } from "./chaos_client.ts";
import {
  type ChaosRig,
  startChaosRig,
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

/** Errors with which an answer may end when a process that it needs is killed. */
const LOSSES = ["worker_lost", "keep_failed", "server_shutdown"];

/** For how many requests the only account was charged today. */
async function chargedRequests({ world }: ChaosRig): Promise<number> {
  const names = await world.command("KEYS", ownerUsageKey("*", "????????"));
  const [name = "none"] = Array.isArray(names) ? names.map(String) : [];
  const reply = await world.command("HGETALL", name);
  const list = Array.isArray(reply) ? reply.map(String) : [];
  return list.reduce(
    (all, field, at) =>
      /^\d\d:req\b/.test(field) ? all + Number(list[at + 1]) : all,
    0,
  );
}

async function readAll(
  rig: ChaosRig,
  random: () => number,
): Promise<ChaosEnd[]> {
  const ends: ChaosEnd[] = [];
  let next = 0;
  await Promise.all(Array.from({ length: CLIENTS }, async () => {
    while (next < REQUESTS) {
      const prompt = `p${next}`;
      next += 1;
      const { key: { key }, edges } = rig;
      const client = new ChaosClient({ key, edges, random });
      ends.push(await client.read(prompt));
    }
  }));
  return ends;
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
    const ends = await readAll(rig, random).catch((error: unknown) => {
      print(rig.faults().join("\n"));
      throw error;
    }).finally(() => {
      isOver = true;
    });
    await killing;
    assert.deepEqual(rig.faults(), []);
    let complete = 0;
    for (const { prompt, text, code } of ends) {
      const whole = wordsFor(prompt).join("");
      if (code === null) {
        complete += 1;
        assert.equal(text, whole);
      } else {
        assert.ok(LOSSES.includes(code), `${prompt}: ${code}`);
        assert.ok(whole.startsWith(text), text);
      }
    }
    // Only the kills of workers end answers.
    assert.ok(ends.length - complete <= kills.worker * CLIENTS, `${complete}`);
    const more = ends.filter(({ prompt }) => (rig.asked.get(prompt) ?? 0) > 1);
    assert.ok(more.length <= kills.worker * CLIENTS, "ran more than once");
    await waitFor(async () => await chargedRequests(rig) >= REQUESTS, {
      what: "all to be charged",
      timeoutMs: SETTLED_MS,
      intervalMs: 1_000,
    });
    const runs = [...rig.asked.values()].reduce((all, each) => all + each, 0);
    assert.ok(await chargedRequests(rig) <= runs, "charged without a run");
    const cuts = ends.reduce((all, { cuts }) => all + cuts, 0);
    assert.ok(cuts > ends.length, `only ${cuts} cuts`);
    const ranAgain = more.length;
    const charged = await chargedRequests(rig);
    print(JSON.stringify({
      complete,
      of: ends.length,
      cuts,
      kills,
      runs,
      ranAgain,
      charged,
    }));
  });
}
