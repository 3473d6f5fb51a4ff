import assert from "node:assert/strict";
import { newInstanceId, newRequestId, publicRequestId } from "./ids.ts";

Deno.test("ASVS 11.5.1: a request's id, of which leases are named too, has 128 random bits", () => {
  const asked: number[] = [];
  const id = newRequestId((length) => {
    asked.push(length);
    return new Uint8Array(length).fill(0xab);
  });
  assert.deepEqual(asked, [16]);
  assert.equal(id, "ab".repeat(16));
  const seen = new Set(Array.from({ length: 1_000 }, () => newRequestId()));
  assert.equal(seen.size, 1_000);
  for (const one of seen) assert.match(one, /^[0-9a-f]{32}$/);
  assert.equal(publicRequestId(id), `req_${id}`);
});

Deno.test("an instance has another id at every start", () => {
  const seen = new Set(Array.from({ length: 1_000 }, () => newInstanceId()));
  assert.equal(seen.size, 1_000);
  for (const one of seen) assert.match(one, /^[0-9a-f]{18}$/);
});
