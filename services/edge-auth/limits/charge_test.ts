// Promise: what nobody counted is never free. A backend that does not count, or a
// client that always leaves early, has the same limits as everybody else.
import assert from "node:assert/strict";
import { type Charge, type ChargedRun, chargeOf, costOf } from "./charge.ts";

const ESTIMATE = {
  promptTokens: 40,
  completionTokens: 100,
  totalTokens: 140,
};
const USAGE = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
const NO_USAGE = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
/** Prompt and completion tokens; null: what was reserved stays. */
type Tokens = [prompt: number | null, completion: number | null];
const RESERVED: Tokens = [null, null];

const complete: ChargedRun = {
  usage: null,
  completionTokens: 0,
  kind: "complete",
  dispatchMs: 1,
  cancelReason: null,
  isHeard: true,
};
const failed: ChargedRun = { ...complete, kind: "failed" };
const lost: ChargedRun = { ...failed, isHeard: false };
const left: ChargedRun = {
  ...complete,
  kind: "cancelled",
  cancelReason: "client_gone",
};
const leftUnheard: ChargedRun = { ...left, isHeard: false };
const late: ChargedRun = { ...failed, cancelReason: "client_gone" };
const notRun: ChargedRun = { ...failed, dispatchMs: null, isHeard: false };

const ENDS: {
  name: string;
  end: ChargedRun;
  charge: Charge;
  tokens: Tokens;
}[] = [
  {
    name: "complete, counted by the backend",
    end: { ...complete, usage: USAGE, completionTokens: 5 },
    charge: "usage",
    tokens: [7, 5],
  },
  {
    name: "complete, not counted, tokens seen",
    end: { ...complete, completionTokens: 9 },
    charge: "produced",
    tokens: [40, 9],
  },
  {
    name: "complete, not counted, no token seen",
    end: complete,
    charge: "reservation",
    tokens: RESERVED,
  },
  {
    name: "complete, counted as nothing at all",
    end: { ...complete, usage: NO_USAGE },
    charge: "reservation",
    tokens: RESERVED,
  },
  {
    name: "complete, a prompt without an answer",
    end: { ...complete, usage: { ...USAGE, completion_tokens: 0 } },
    charge: "usage",
    tokens: [7, 0],
  },
  {
    name: "an error before the first token",
    end: failed,
    charge: "nothing",
    tokens: [0, 0],
  },
  {
    name: "an error in mid-stream",
    end: { ...failed, completionTokens: 3 },
    charge: "produced",
    tokens: [40, 3],
  },
  {
    name: "an error with what the backend counted",
    end: { ...failed, usage: USAGE, completionTokens: 5 },
    charge: "usage",
    tokens: [7, 5],
  },
  {
    name: "its worker lost before the first token",
    end: lost,
    charge: "nothing",
    tokens: [0, 0],
  },
  {
    name: "its worker lost in mid-stream",
    end: { ...lost, completionTokens: 3 },
    charge: "produced",
    tokens: [40, 3],
  },
  {
    name: "its client left before the first token",
    end: left,
    charge: "produced",
    tokens: [40, 0],
  },
  {
    name: "its client left before the first token, the worker is silent",
    end: leftUnheard,
    charge: "reservation",
    tokens: RESERVED,
  },
  {
    name: "its client left in mid-stream",
    end: { ...left, completionTokens: 3 },
    charge: "produced",
    tokens: [40, 3],
  },
  {
    name: "its client left in mid-stream, the worker is silent",
    end: { ...leftUnheard, completionTokens: 3 },
    charge: "produced",
    tokens: [40, 3],
  },
  {
    name: "its time was up, or its key was stopped, before the first token",
    end: late,
    charge: "produced",
    tokens: [40, 0],
  },
  {
    name: "its time was up, the worker is silent",
    end: { ...late, isHeard: false },
    charge: "reservation",
    tokens: RESERVED,
  },
  {
    name: "rejected by all workers, or overloaded",
    end: notRun,
    charge: "nothing",
    tokens: [0, 0],
  },
  {
    name: "its client left while it waited for a worker",
    end: { ...leftUnheard, dispatchMs: null },
    charge: "nothing",
    tokens: [0, 0],
  },
];

for (const { name, end, charge, tokens } of ENDS) {
  Deno.test(`a request costs ${charge}: ${name}`, () => {
    assert.equal(chargeOf(end), charge);
    const [promptTokens, completionTokens] = tokens;
    assert.deepEqual(costOf(end, charge, ESTIMATE), {
      promptTokens,
      completionTokens,
      kind: end.kind,
    });
  });
}

Deno.test("whatever a request came to, it is free only where no token was made", () => {
  const flags = [true, false];
  for (const kind of ["complete", "failed", "cancelled"] as const) {
    for (const usage of [null, USAGE, NO_USAGE]) {
      for (const completionTokens of [0, 1]) {
        for (const isStopped of flags) {
          for (const isHeard of flags) {
            const end: ChargedRun = {
              kind,
              usage,
              completionTokens,
              cancelReason: isStopped ? "client_gone" : null,
              isHeard,
              dispatchMs: 1,
            };
            const isFree = chargeOf(end) === "nothing";
            const mayBeFree = kind !== "complete" && !isStopped &&
              completionTokens === 0 && usage !== USAGE;
            assert.equal(isFree, mayBeFree, JSON.stringify(end));
          }
        }
      }
    }
  }
});
