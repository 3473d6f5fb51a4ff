/** Lines of the log. */
import assert from "node:assert/strict";
import { newRequestId } from "./ids.ts";
import { createLog, LineWriter, LOG_LEVELS, type LogLevel } from "./log.ts";

function setup(level: LogLevel, sample?: number) {
  const lines: string[] = [];
  const log = createLog({
    service: "test",
    level,
    sample,
    now: () => 0,
    write: (line) => void lines.push(line()),
  });
  return { log, lines };
}

Deno.test("createLog() writes one JSON line per event, with time, level and service first", () => {
  const { log, lines } = setup("info");
  log.info("ready", { requestId: "req_1", port: 8080 });
  assert.deepEqual(lines, [
    '{"time":"1970-01-01T00:00:00.000Z","level":"info","service":"test","event":"ready","requestId":"req_1","port":8080}',
  ]);
});

Deno.test("createLog() drops lines below its level, but no notice", () => {
  for (const [at, level] of LOG_LEVELS.entries()) {
    const { log, lines } = setup(level);
    for (const each of LOG_LEVELS) log[each]("event");
    log.notice("ready");
    assert.equal(lines.length, LOG_LEVELS.length - at + 1, level);
  }
});

Deno.test("isSampled() is true for a share of all requests, for the same ones in every log", () => {
  const ids = Array.from({ length: 2_000 }, newRequestId);
  const sampled = (share?: number) => {
    const { log } = setup("info", share);
    return ids.filter((id) => log.isSampled(id));
  };
  assert.deepEqual(sampled(), ids);
  assert.deepEqual(sampled(0), []);
  const some = sampled(0.25);
  // Off by more in one of 10^9 runs.
  assert.ok(Math.abs(some.length - 500) < 120, `${some.length}`);
  assert.deepEqual(sampled(0.25), some);
});

Deno.test("ASVS 16.2.5, 16.4.1: no key reaches a line, and no text begins a line of its own", () => {
  const { log, lines } = setup("info");
  const key = `sk-Cg${"a1B2".repeat(11)}cd`;
  const userAgent = 'a\r\n{"event":"forged"}\x9b31m\x7f\u202e\u2028';
  log.info(`leak ${key}`, {
    key,
    userAgent,
    nested: { header: `Bearer ${key}` },
    error: new Error(`bad ${key}`, { cause: new Error(key) }),
  });
  assert.ok(!lines[0]?.includes(key));
  const redacted = lines[0]?.match(/sk-\[redacted\]/g) ?? [];
  assert.ok(redacted.length >= 5);
  assert.match(lines[0] ?? "", /^[ -~]+$/, "nor steer a terminal");
  assert.equal(JSON.parse(lines[0] ?? "").userAgent, userAgent);
});

function recordingSink(bytesPerWrite = Infinity) {
  const decoder = new TextDecoder();
  return {
    text: "",
    writes: 0,
    write(bytes: Uint8Array) {
      const part = bytes.subarray(0, Math.min(bytes.length, bytesPerWrite));
      this.text += decoder.decode(part, { stream: true });
      this.writes += 1;
      return Promise.resolve(part.length);
    },
  };
}

Deno.test("LineWriter writes the lines of a moment at once, and after a short write the rest", async () => {
  const lines = Array.from({ length: 100 }, (_, index) => `line ${index}`);
  for (const [bytesPerWrite, isOneWrite] of [[Infinity, true], [7, false]]) {
    const sink = recordingSink(Number(bytesPerWrite));
    const writer = new LineWriter(sink, () => {});
    // An urgent line takes along those that wait; `flush` waits for neither.
    for (const line of lines) {
      writer.write(() => line, line === "line 50");
    }
    await writer.flush();
    assert.equal(sink.writes === 1, isOneWrite);
    assert.equal(sink.text, lines.map((line) => `${line}\n`).join(""));
  }
});

Deno.test("LineWriter survives a reader that is gone", async () => {
  const writer = new LineWriter({
    write: () => Promise.reject(new Deno.errors.BrokenPipe("gone")),
  }, () => {});
  writer.write(() => "lost");
  await writer.flush();
  writer.write(() => "lost too");
  await writer.flush();
});

Deno.test("LineWriter drops lines nobody reads and says how many", async () => {
  const sink = recordingSink();
  const writer = new LineWriter(
    sink,
    (count) => writer.write(() => `dropped ${count}`),
  );
  // Nothing is read before this turn of the event loop ends.
  for (let i = 0; i < 5_005; i += 1) writer.write(() => "x");
  await writer.flush();
  writer.write(() => "last");
  await writer.flush();
  const written = "x\n".repeat(5_000);
  assert.equal(sink.text, `${written}dropped 5\nlast\n`);
});
