import assert from "node:assert/strict";
import { createLog, type LogLevel } from "./log.ts";

function setup(level: LogLevel) {
  const lines: string[] = [];
  const log = createLog({
    service: "test",
    level,
    now: () => 0,
    write: (line) => void lines.push(line),
  });
  return { log, lines };
}

Deno.test("createLog() writes one JSON line per event, with time, level and service first", () => {
  const { log, lines } = setup("info");
  log.with({ requestId: "req_1" }).info("ready", { port: 8080 });
  assert.deepEqual(lines, [
    '{"time":"1970-01-01T00:00:00.000Z","level":"info","service":"test","event":"ready","requestId":"req_1","port":8080}',
  ]);
});

Deno.test("createLog() drops lines below its level", () => {
  for (
    const [level, count] of [["debug", 4], ["info", 3], ["warn", 2], [
      "error",
      1,
    ]] as const
  ) {
    const { log, lines } = setup(level);
    log.debug("a");
    log.info("b");
    log.warn("c");
    log.error("d");
    assert.equal(lines.length, count, level);
  }
});

Deno.test("notice() is written at any level", () => {
  const { log, lines } = setup("error");
  log.notice("ready");
  assert.equal(lines.length, 1);
});

Deno.test("ASVS 16.2.5: a key never reaches a line, wherever it hides", () => {
  const { log, lines } = setup("info");
  const key = `sk-Cg${"a1B2".repeat(11)}cd`;
  log.info(`leak ${key}`, {
    key,
    nested: { header: `Bearer ${key}` },
    error: new Error(`bad ${key}`, { cause: new Error(key) }),
  });
  assert.ok(!lines[0]?.includes(key));
  const redacted = lines[0]?.match(/sk-\[redacted\]/g) ?? [];
  assert.ok(redacted.length >= 5);
});

Deno.test("ASVS 16.4.1: text cannot begin a line of its own", () => {
  const { log, lines } = setup("info");
  log.info("x", { userAgent: 'a\r\n{"event":"forged"}' });
  assert.ok(!/[\r\n]/.test(lines[0] ?? ""));
});
