/** Shared by the tests of bodies and forms. */
import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import type { Timed } from "@gateway/shared/process/deadlines";
import { BodyBudget } from "./body_budget.ts";

/** Lets the bodies of tests arrive as they are written. */
const NO_TURNS = { took: () => {}, next: () => Promise.resolve() };

/** A body that the test writes. */
export function openExchange(
  headers: Record<string, string>,
  body = new PassThrough(),
) {
  const exchange = { headers, openBody: () => body, turns: NO_TURNS };
  return { body, exchange };
}

/** A budget of memory, and deadlines by a clock that the test moves on. */
export function testBudget({ bodiesBytesMax = 1e9, bodyBytesMax = 1e6 } = {}) {
  let nowMs = 0;
  const due = new Set<Timed>();
  const bodyBudget = new BodyBudget({ bodiesBytesMax, bodyBytesMax });
  return {
    bodyBudget,
    deadlines: {
      add: (item: Timed) => void due.add(item),
      remove: (item: Timed) => void due.delete(item),
    },
    now: () => nowMs,
    pass(ms: number): void {
      nowMs += ms;
      for (const item of due) if (item.expiresAtMs <= nowMs) item.expire();
    },
    /** Nothing is held or awaited. */
    assertIdle: () => assert.deepEqual([due.size, bodyBudget.bytes], [0, 0]),
  };
}
