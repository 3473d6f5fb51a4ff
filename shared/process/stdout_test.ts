import assert from "node:assert/strict";
import { type ByteSink, createLineWriter } from "./stdout.ts";

function recordingSink(
  bytesPerWrite = Infinity,
): ByteSink & { text: string; writes: number } {
  const decoder = new TextDecoder();
  return {
    text: "",
    writes: 0,
    write(bytes) {
      const taken = bytes.subarray(0, Math.min(bytes.length, bytesPerWrite));
      this.text += decoder.decode(taken, { stream: true });
      this.writes += 1;
      return Promise.resolve(taken.length);
    },
  };
}

Deno.test("createLineWriter() writes the lines of one turn at once and in order", async () => {
  const sink = recordingSink();
  const writer = createLineWriter(sink);
  for (let i = 0; i < 100; i += 1) writer.write(`line ${i}`);
  await writer.flush();
  assert.equal(sink.writes, 1);
  assert.equal(
    sink.text,
    Array.from({ length: 100 }, (_, i) => `line ${i}\n`).join(""),
  );
});

Deno.test("createLineWriter() goes on after a short write", async () => {
  const sink = recordingSink(3);
  const writer = createLineWriter(sink);
  writer.write("12345678");
  await writer.flush();
  assert.equal(sink.text, "12345678\n");
});

Deno.test("createLineWriter() survives a reader that is gone", async () => {
  const writer = createLineWriter({
    write: () => Promise.reject(new Deno.errors.BrokenPipe("gone")),
  });
  writer.write("lost");
  await writer.flush();
  writer.write("lost too");
  await writer.flush();
});

Deno.test("createLineWriter() drops lines nobody reads and says how many", async () => {
  const sink = recordingSink();
  let release = () => {};
  const gate = new Promise<void>((resolve) => release = resolve);
  const writer = createLineWriter({
    write: async (bytes) => {
      await gate;
      return sink.write(bytes);
    },
  });
  writer.write("first");
  await Promise.resolve();
  await Promise.resolve();
  const mebibyte = "x".repeat(1024 * 1024);
  for (let i = 0; i < 10; i += 1) writer.write(mebibyte);
  release();
  await writer.flush();
  writer.write("last");
  await writer.flush();
  const report = /"log_lines_dropped","count":(\d+)/.exec(sink.text);
  const written = sink.text.split("\n").filter((line) => line.startsWith("x"));
  assert.equal(written.length + Number(report?.[1]), 10);
  assert.ok(sink.text.endsWith("last\n"));
});
