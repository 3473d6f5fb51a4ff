import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { waitFor } from "../../../tests/support/wait_for.ts";
import { createDrain } from "./drain.ts";

const HOST = "127.0.0.1";
const LEAD_MS = 300;

const connects = (port: number): Promise<boolean> =>
  Deno.connect({ hostname: HOST, port }).then((socket) => {
    socket.close();
    return true;
  }, () => false);

Deno.test("the ready port is open until the drain begins, and closed through the lead time", async () => {
  const drain = createDrain({
    hostname: HOST,
    readyPort: 0,
    leadMs: LEAD_MS,
  });
  const port = drain.readyPort ?? assert.fail("no port");
  const response = await fetch(`http://${HOST}:${port}/`);
  assert.equal(response.status, 204);
  assert.equal(drain.hasBegun, false);

  const startMs = monotonicNow();
  const gone = drain.begin();
  assert.equal(drain.hasBegun, true);
  await waitFor(async () => !(await connects(port)), {
    what: "the ready port to be closed",
  });
  const closedMs = monotonicNow() - startMs;
  assert.ok(closedMs < LEAD_MS, `closed only after ${closedMs} ms`);
  await gone;
  assert.ok(monotonicNow() - startMs >= LEAD_MS - 1);
});
