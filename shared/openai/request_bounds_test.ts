import assert from "node:assert/strict";
import { catalog, ping, refusalOf } from "./request_cases_test.ts";
import { parseChatRequest } from "./request.ts";

/** `number` fields: what is accepted, what is refused, and with which code. */
const BELOW = "decimal_below_min_value";
const ABOVE = "decimal_above_max_value";
const INT_BELOW = "integer_below_min_value";
const INT_ABOVE = "integer_above_max_value";
const TYPE = "invalid_type";
const VALUE = "invalid_value";
const SAFE = Number.MAX_SAFE_INTEGER;

interface Bounds {
  field: string;
  accepted: unknown[];
  refused: [value: unknown, code: string][];
}

/** What no number field takes. `Infinity` is what JSON's `1e400` parses to. */
const NEVER: [unknown, string][] = [
  ["1", TYPE],
  ["hot", TYPE],
  [true, TYPE],
  [[1], TYPE],
  [{}, TYPE],
  [Infinity, VALUE],
  [-Infinity, VALUE],
];

const INTEGERS: [unknown, string][] = [[1.5, TYPE], [SAFE + 1, INT_ABOVE]];

const FIELDS: Bounds[] = [
  {
    field: "temperature",
    accepted: [0, -0, 0.7, 2],
    refused: [[-0.1, BELOW], [2.1, ABOVE], [200, ABOVE]],
  },
  {
    field: "top_p",
    accepted: [0, 0.5, 1],
    refused: [[-0.1, BELOW], [1.1, ABOVE]],
  },
  {
    field: "presence_penalty",
    accepted: [-2, 0, 2],
    refused: [[-2.1, BELOW], [2.1, ABOVE], [3, ABOVE]],
  },
  {
    field: "frequency_penalty",
    accepted: [-2, 0, 2],
    refused: [[-2.1, BELOW], [2.1, ABOVE]],
  },
  {
    field: "repetition_penalty",
    accepted: [Number.MIN_VALUE, 1, 1.05, 100],
    refused: [[0, BELOW], [-0, BELOW], [-1, BELOW]],
  },
  {
    field: "n",
    accepted: [1, 1.0, 8],
    refused: [[0, INT_BELOW], [-1, INT_BELOW], [9, INT_ABOVE], [
      1_000_000,
      INT_ABOVE,
    ], ...INTEGERS],
  },
  {
    field: "max_tokens",
    accepted: [1, 32_768],
    refused: [
      [0, INT_BELOW],
      [-1, INT_BELOW],
      [32_769, INT_ABOVE],
      // What JSON.parse makes of 9007199254740993.
      ...INTEGERS,
    ],
  },
  {
    field: "max_completion_tokens",
    accepted: [1, 32_768],
    refused: [[0, INT_BELOW], [32_769, INT_ABOVE], ...INTEGERS],
  },
  {
    field: "seed",
    accepted: [0, -1, 2_147_483_647, SAFE, -SAFE],
    refused: [[-SAFE - 1, INT_BELOW], ...INTEGERS],
  },
  {
    field: "top_logprobs",
    accepted: [0, 20],
    refused: [[-1, INT_BELOW], [21, INT_ABOVE], ...INTEGERS],
  },
  {
    field: "thinking_budget",
    accepted: [1, SAFE],
    refused: [[0, INT_BELOW], ...INTEGERS],
  },
];

Deno.test("parseChatRequest() refuses more choices than the model gives", () => {
  for (const n of [1, null]) {
    parseChatRequest({ ...ping, model: "single", n }, catalog);
  }
  const error = refusalOf({ ...ping, model: "single", n: 2 });
  assert.equal(error.status, 400);
  assert.equal(error.code, INT_ABOVE);
  assert.equal(error.param, "n");
  assert.equal(
    error.message,
    "Invalid 'n': integer above maximum value. Expected a value <= 1, but got 2 instead.",
  );
});

for (const { field, accepted, refused } of FIELDS) {
  Deno.test(`parseChatRequest() accepts ${field} on its bounds, or null`, () => {
    for (const value of [...accepted, null]) {
      parseChatRequest({ ...ping, logprobs: true, [field]: value }, catalog);
    }
  });

  Deno.test(`parseChatRequest() refuses ${field} beyond its bounds`, () => {
    for (const [value, code] of [...refused, ...NEVER]) {
      const error = refusalOf({ ...ping, [field]: value });
      assert.equal(error.code, code, `${field} ${String(value)}`);
      assert.equal(error.param, field);
      assert.equal(error.status, 400);
    }
  });
}

Deno.test("parseChatRequest() names bound and value of a number out of range", () => {
  const rows: [string, number, string][] = [
    [
      "temperature",
      200,
      "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 200 instead.",
    ],
    [
      "n",
      0,
      "Invalid 'n': integer below minimum value. Expected a value >= 1, but got 0 instead.",
    ],
    [
      "n",
      64,
      "Invalid 'n': integer above maximum value. Expected a value <= 8, but got 64 instead.",
    ],
    [
      "n",
      1.5,
      "Invalid type for 'n': expected an integer, but got a decimal number instead.",
    ],
    [
      "presence_penalty",
      -3,
      "Invalid 'presence_penalty': decimal below minimum value. Expected a value >= -2, but got -3 instead.",
    ],
    [
      "repetition_penalty",
      0,
      "Invalid 'repetition_penalty': decimal below minimum value. Expected a value > 0, but got 0 instead.",
    ],
    [
      "max_tokens",
      99_999,
      "Invalid 'max_tokens': integer above maximum value. Expected a value <= 32768, but got 99999 instead.",
    ],
    [
      "top_p",
      Infinity,
      "Invalid 'top_p': number out of range. Expected a finite number.",
    ],
    [
      "seed",
      SAFE + 1,
      "Invalid 'seed': integer above maximum value. Expected a value <= 9007199254740991, but got 9007199254740992 instead.",
    ],
  ];
  for (const [field, value, message] of rows) {
    assert.equal(refusalOf({ ...ping, [field]: value }).message, message);
  }
});

Deno.test("parseChatRequest() takes any max_tokens where the backend decides", () => {
  const request = parseChatRequest(
    { ...ping, model: "plain", max_tokens: 10_000_000 },
    catalog,
  );
  assert.equal(request.max_tokens, 10_000_000);
});

Deno.test("parseChatRequest() accepts lists and names on their bounds", () => {
  const tools = Array.from({ length: 128 }, (_, index) => ({
    type: "function",
    function: { name: `f${index}`.padEnd(64, "_") },
  }));
  const messages = Array.from({ length: 4096 }, () => ({
    role: "user",
    content: Array(2).fill({ type: "text", text: "" }),
  }));
  const request = parseChatRequest({
    ...ping,
    messages,
    tools,
    stop: Array(16).fill("s".repeat(512)),
  }, catalog);
  assert.equal(request.messages.length, 4096);
  assert.equal(request.tools?.length, 128);
  assert.equal(request.stop?.length, 16);
});
