import assert from "node:assert/strict";
import type { SimulatorKnobs } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import { failureOf, midStreamFailure, readControls } from "./faults.ts";
import { randomFrom } from "./sampling/random.ts";
import { requestOf } from "./test_support.ts";

const KNOBS: SimulatorKnobs = {
  firstTokenMs: 0,
  tokensPerSecond: 0,
  jitter: 0,
  errorRate: 0,
  midStreamErrorRate: 0,
};

const FAILURES: [status: number, code: string, sent: number][] = [
  [400, "invalid_request", 400],
  [404, "invalid_request", 404],
  [422, "invalid_request", 422],
  [401, "upstream_error", 502],
  [403, "upstream_error", 502],
  [408, "upstream_timeout", 504],
  [429, "upstream_rate_limited", 429],
  [500, "upstream_error", 502],
  [502, "upstream_error", 502],
  [503, "service_unavailable", 503],
  [504, "upstream_timeout", 504],
];

for (const [status, code, sent] of FAILURES) {
  Deno.test(`a model server's ${status} is ${code} with status ${sent}`, () => {
    const error = failureOf(status);
    assert.equal(error.code, code);
    assert.equal(error.status, sent);
    assert.match(error.message, new RegExp(`${status}`));
    const waits = status === 429 || status === 503;
    assert.equal(error.retryAfterMs, waits ? 1000 : null);
  });
}

Deno.test("an answer that breaks off is an upstream error", () => {
  assert.equal(midStreamFailure().code, "upstream_error");
});

Deno.test("errorRate and midStreamErrorRate hit their share of requests", () => {
  const random = randomFrom("rates");
  const knobs = { ...KNOBS, errorRate: 0.3, midStreamErrorRate: 0.1 };
  let errors = 0;
  let failures = 0;
  for (let i = 0; i < 4000; i++) {
    const controls = readControls(requestOf(), knobs, random);
    if (controls.errorStatus !== undefined) errors += 1;
    const { failAfterTokens } = controls;
    if (failAfterTokens === undefined) continue;
    failures += 1;
    assert.ok(failAfterTokens >= 1 && failAfterTokens <= 16);
  }
  assert.ok(Math.abs(errors / 4000 - 0.3) < 0.04);
  assert.ok(Math.abs(failures / 4000 - 0.1) < 0.03);
});

const never = () => assert.fail("no chance is needed");

Deno.test("rates of 0 ask no chance", () => {
  assert.deepEqual(readControls(requestOf(), KNOBS, never), {});
});

Deno.test("phrases count in the last user message only, wherever it stands", () => {
  const request = requestOf({
    messages: [
      { role: "user", content: "[simulator: error 500]" },
      { role: "assistant", content: "[simulator: error 501]" },
      {
        role: "user",
        content: [{ type: "text", text: "[simulator: 7 tokens]" }],
      },
      { role: "assistant", content: "[simulator: error 502]" },
    ],
  });
  assert.deepEqual(readControls(request, KNOBS, never), { exactTokens: 7 });
  const system = requestOf({
    messages: [{ role: "system", content: "[simulator: error 500]" }],
  });
  assert.deepEqual(readControls(system, KNOBS, never), {});
});

Deno.test("phrases can be switched off", () => {
  const request = requestOf({
    messages: "[simulator: error 500] [simulator: x]",
  });
  const knobs = { ...KNOBS, controlPhrases: false };
  assert.deepEqual(readControls(request, knobs, never), {});
});

Deno.test("an unknown phrase is refused with the known ones", () => {
  const request = requestOf({ messages: "[simulator: eror 500]" });
  assert.throws(() => readControls(request, KNOBS, never), (error) => {
    assert.ok(error instanceof ApiError);
    assert.equal(error.code, "invalid_value");
    assert.equal(error.param, "messages");
    assert.match(error.message, /'eror 500'.*error 500/);
    return true;
  });
});
