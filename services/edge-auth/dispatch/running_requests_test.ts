import assert from "node:assert/strict";
import { silentLog } from "@gateway/shared/process/log";
import { RunningRequests } from "./running_requests.ts";
import { stopKeyRequests } from "./running_requests.ts";

const KEY = { keyId: "key_a", ownerId: "own_a" };
const OTHER = { keyId: "key_b", ownerId: "own_a" };

/** Sends a notice and returns what was cancelled of these requests. */
function stop(running: RunningRequests, notice: unknown, ids: string[]) {
  const cancelled: string[] = [];
  const text = typeof notice === "string" ? notice : JSON.stringify(notice);
  stopKeyRequests(new TextEncoder().encode(text), {
    running,
    log: silentLog,
    dispatcher: {
      cancelAll(_reason, error, isMeant) {
        assert.equal(error.code, "key_revoked");
        cancelled.push(...ids.filter((id) => isMeant?.(id)));
      },
    },
  });
  return cancelled;
}

Deno.test("a notice stops the requests of its key and no others", () => {
  const running = new RunningRequests();
  running.add(KEY, "1");
  running.add(KEY, "2");
  running.add(OTHER, "3");
  const notice = { keyId: KEY.keyId, ownerId: KEY.ownerId, action: "stop" };
  assert.deepEqual(stop(running, notice, ["1", "2", "3"]), ["1", "2"]);
  assert.deepEqual(
    ["1", "2", "3"].map((id) => running.isStopped(id)),
    [true, true, false],
  );
});

Deno.test("what comes after the notice is the admission's to decide", () => {
  const running = new RunningRequests();
  assert.deepEqual(stop(running, { keyId: KEY.keyId, action: "stop" }, []), []);
  running.add(KEY, "1");
  assert.equal(running.isStopped("1"), false);
});

Deno.test("a request that has ended leaves nothing behind", () => {
  const running = new RunningRequests();
  running.add(KEY, "1");
  running.stop(KEY.keyId);
  running.remove(KEY, "1");
  running.remove(KEY, "never there");
  assert.equal(running.isStopped("1"), false);
  assert.equal(running.keys, 0);
});

Deno.test("anything but a notice to stop is ignored", () => {
  const running = new RunningRequests();
  running.add(KEY, "1");
  const others = [
    "",
    "{",
    "null",
    { keyId: KEY.keyId },
    { keyId: KEY.keyId, action: "go" },
    { keyId: 1, action: "stop" },
  ];
  for (const other of others) assert.deepEqual(stop(running, other, ["1"]), []);
  assert.equal(running.isStopped("1"), false);
});
