import assert from "node:assert/strict";
import { createEventNotices } from "./notices.ts";
import { describeEvent, findEvents } from "./service_event.ts";

Deno.test("findEvents() picks what the launcher acts on", () => {
  const lines = [
    '{"level":"info","event":"request","status":200}',
    '{"level":"info","event":"ready","port":8080,"opsPort":9}',
    '{ "event": "setup_link", "url": "http://x/#t" }',
    '{"level":"warn","event":"redis_slow"}',
    '{"level":"error","broken',
    '{"level":"error"}',
    "some text with no JSON",
    "",
  ].join("\n");
  assert.deepEqual(
    findEvents(lines).map(({ event, level }) => [event, level]),
    [["ready", "info"], ["setup_link", "info"], ["redis_slow", "warn"]],
  );
  assert.deepEqual(findEvents(""), []);
});

Deno.test("describeEvent() says what happened, briefly", () => {
  const event = (fields: Record<string, unknown>) =>
    describeEvent({ event: "bus_down", level: "error", fields });
  assert.equal(
    event({ time: "t", service: "s", event: "bus_down" }),
    "bus_down",
  );
  assert.equal(
    event({
      address: "127.0.0.1:4222",
      tries: 3,
      error: { message: "refused", stack: "…" },
    }),
    "bus_down: address=127.0.0.1:4222 tries=3 error=refused",
  );
  assert.ok(event({ text: "x".repeat(1_000) }).length <= 301);
});

Deno.test("createEventNotices() shows a repeated event once in 10 s", () => {
  let now = 0;
  const notice = createEventNotices(() => now);
  const warning = { event: "redis_down", level: "warn", fields: {} };
  assert.equal(notice("edge-auth", warning), "edge-auth warn: redis_down");
  now = 9_999;
  assert.equal(notice("edge-auth", warning), undefined);
  assert.equal(notice("edge-auth-2", warning), "edge-auth-2 warn: redis_down");
  now = 10_000;
  assert.equal(
    notice("edge-auth", warning),
    "edge-auth warn: redis_down (and 1 more)",
  );
});
