/** Admission of requests whose clients stay or leave. */
import assert from "node:assert/strict";
import { costsNothing } from "../limits/cost.ts";
import { leaseOf } from "./lease_fixture.ts";
import { admit, type RunAsk } from "./admit.ts";

const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };
const ASK: RunAsk = {
  scope: "video",
  model: "video-1",
  estimate: costsNothing(),
};

interface Case {
  name: string;
  isReturned: boolean;
  hasLeft: boolean;
  isStopped: boolean;
  /** What became of the lease. */
  lease: "undone" | "settled" | "given";
}

const CASES: Case[] = [
  {
    name: "the client stays",
    isReturned: false,
    hasLeft: false,
    isStopped: false,
    lease: "given",
  },
  {
    name: "the client has left: the request counts",
    isReturned: false,
    hasLeft: true,
    isStopped: false,
    lease: "settled",
  },
  {
    name: "the client of a download has left: nothing counts",
    isReturned: true,
    hasLeft: true,
    isStopped: false,
    lease: "undone",
  },
  {
    name: "the key was stopped: the request counts",
    isReturned: false,
    hasLeft: false,
    isStopped: true,
    lease: "settled",
  },
  {
    name: "the key of a download was stopped: nothing counts",
    isReturned: true,
    hasLeft: false,
    isStopped: true,
    lease: "undone",
  },
];

for (const { name, isReturned, hasLeft, isStopped, lease } of CASES) {
  Deno.test(`admit(): ${name}`, async () => {
    const events: string[] = [];
    const granted = leaseOf(PRINCIPAL, {
      settle() {
        events.push("settled");
        return null;
      },
      undo: () => void events.push("undone"),
    });
    const call = {
      exchange: { socket: { destroyed: hasLeft } },
      principal: PRINCIPAL,
    };
    const admitted = admit(call, { ...ASK, isReturned }, {
      admission: { admit: () => Promise.resolve(granted) },
      dispatcher: { isStoppedSince: () => isStopped },
      now: () => 0,
    });
    if (isStopped) await assert.rejects(admitted, /stopped|disabled|revoked/i);
    else assert.equal(await admitted, hasLeft ? null : granted);
    assert.deepEqual(events, lease === "given" ? [] : [lease]);
  });
}
