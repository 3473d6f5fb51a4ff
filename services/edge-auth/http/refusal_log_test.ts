/** Which refusals have log lines of their own, and which are summed up. */
import assert from "node:assert/strict";
import { REFUSAL_LOG } from "@gateway/shared/limits";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { RefusalLog, type RefusedRequest } from "./refusal_log.ts";

const { linesFirst, clientsMax, sumMs } = REFUSAL_LOG;

function setup() {
  const log = createRecordingLog();
  let requests = 0;
  const refusals = new RefusalLog(log);
  return {
    refuse(times: number, line: Partial<RefusedRequest> = {}): void {
      for (let i = 0; i < times; i += 1) {
        refusals.add({
          requestId: `req_${++requests}`,
          clientAddress: "192.0.2.1",
          keyId: undefined,
          ownerId: undefined,
          status: 401,
          errorCode: "unauthorized",
          ...line,
        });
      }
    },
    writeSums: () => refusals.writeSums(),
    /** The lines of this event since the last call. */
    written: (event: string) =>
      log.lines.splice(0).filter((line) => line.event === event)
        .map(({ fields }) => fields),
  };
}

Deno.test("RefusalLog writes the first refusals of a client at once and sums up the others", () => {
  const t = setup();
  t.refuse(3_000);
  assert.equal(t.written("request").length, linesFirst);
  t.writeSums();
  const sum = {
    clientAddress: "192.0.2.1",
    keyId: undefined,
    ownerId: undefined,
    status: 401,
    errorCode: "unauthorized",
    count: 3_000 - linesFirst,
    lastRequestId: "req_3000",
  };
  assert.deepEqual(t.written("refusals"), [sum]);
  // A client that goes on costs one line a minute, one that stopped is forgotten.
  t.refuse(1);
  t.writeSums();
  const [{ count, lastRequestId } = {}, ...more] = t.written("refusals");
  assert.deepEqual([count, lastRequestId, more], [1, "req_3001", []]);
  t.writeSums();
  t.writeSums();
  t.refuse(linesFirst);
  assert.equal(t.written("request").length, linesFirst);
});

Deno.test("RefusalLog keeps keys, addresses and codes apart, and joins the addresses of an IPv6 site", () => {
  const t = setup();
  const refusalOf = (keyId: string) => ({
    keyId,
    ownerId: "own_a",
    status: 429,
  });
  const groups: Partial<RefusedRequest>[][] = [
    [{}, {}],
    [{ errorCode: "not_found" }, { errorCode: "not_found" }],
    [{ clientAddress: "192.0.2.2" }, { clientAddress: "192.0.2.2" }],
    [{ clientAddress: "2001:db8::1" }, { clientAddress: "2001:db8::2" }],
    [refusalOf("key_a"), { ...refusalOf("key_a"), clientAddress: "192.0.2.3" }],
    [refusalOf("key_b"), refusalOf("key_b")],
  ];
  for (const [first, later] of groups) {
    t.refuse(linesFirst, first);
    t.refuse(1, later);
  }
  assert.equal(t.written("request").length, groups.length * linesFirst);
  t.writeSums();
  const sums = t.written("refusals");
  assert.deepEqual(sums.map(({ count }) => count), groups.map(() => 1));
});

Deno.test("API4: RefusalLog is bounded: a flood from ever new addresses is summed up by code", () => {
  const t = setup();
  const flood = () => {
    for (let i = 0; i < 2 * clientsMax; i += 1) {
      t.refuse(linesFirst + 1, { clientAddress: `10.0.${i >> 8}.${i & 255}` });
    }
  };
  flood();
  assert.equal(t.written("request").length, (clientsMax + 1) * linesFirst);
  t.writeSums();
  const sums = t.written("refusals");
  assert.equal(sums.length, clientsMax + 1);
  const others = sums.at(-1) ?? {};
  assert.equal(others.clientAddress, "others");
  assert.equal(others.count, clientsMax * (linesFirst + 1) - linesFirst);
  assert.ok(sumMs >= 60_000, "at most this many lines in this time");
});
