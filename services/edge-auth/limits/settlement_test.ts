// Promise: what a request is charged in the end is what it used, or what was reserved
// where nobody knows, whether or not Redis still has the reservation.
import assert from "node:assert/strict";
import type { Admitted, Cost } from "./limiter.ts";
import { settlementOf } from "./settlement.ts";

const RESERVED = 100;
const AT_MS = Date.UTC(2026, 10, 20, 9, 30);

function admitted(isLost: boolean): Admitted {
  return {
    isAdmitted: true,
    id: "lease",
    principal: { keyId: "key_a", ownerId: "own_a" },
    requestId: "r",
    reservedTokens: RESERVED,
    rates: { requests: null, tokens: null },
    terms: {
      atMs: AT_MS,
      flags: 0,
      keyTokensPerMinute: 0,
      ownerTokensPerMinute: 0,
    },
    isOwnerCounted: false,
    isSlotLimited: false,
    isLost,
  };
}

/** What the settle script adds to what stands charged. */
const CASES: {
  name: string;
  tokens: [prompt: number | null, completion: number | null];
  isLost: boolean;
  mode: "held" | "late";
  correction: number;
}[] = [
  {
    name: "less than reserved",
    tokens: [10, 20],
    isLost: false,
    mode: "held",
    correction: -70,
  },
  {
    name: "as much as reserved",
    tokens: [60, 40],
    isLost: false,
    mode: "held",
    correction: 0,
  },
  {
    name: "more than reserved",
    tokens: [60, 50],
    isLost: false,
    mode: "held",
    correction: 10,
  },
  {
    name: "nothing",
    tokens: [0, 0],
    isLost: false,
    mode: "held",
    correction: -RESERVED,
  },
  {
    name: "unknown",
    tokens: [null, null],
    isLost: false,
    mode: "held",
    correction: 0,
  },
  {
    name: "less than reserved, reservation lost",
    tokens: [10, 20],
    isLost: true,
    mode: "late",
    correction: 30,
  },
  {
    name: "nothing, reservation lost",
    tokens: [0, 0],
    isLost: true,
    mode: "late",
    correction: 0,
  },
  {
    name: "unknown, reservation lost",
    tokens: [null, null],
    isLost: true,
    mode: "late",
    correction: RESERVED,
  },
];

for (const { name, tokens, isLost, mode, correction } of CASES) {
  Deno.test(`settlementOf() a request that used ${name}: ${mode}, ${correction}`, () => {
    const [promptTokens, completionTokens] = tokens;
    const cost: Cost = {
      promptTokens,
      completionTokens,
      kind: "complete",
    };
    const settlement = settlementOf(admitted(isLost), cost);
    assert.equal(settlement.mode, mode);
    assert.equal(settlement.terms[3], String(correction));
    assert.deepEqual(
      settlement.terms.slice(7, 9),
      [String(promptTokens ?? 0), String(completionTokens ?? 0)],
    );
  });
}
