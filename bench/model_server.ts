/**
 * The model server behind all gateways of a run: canned answers over plain sockets,
 * so that it costs little. `deno run --allow-net bench/model_server.ts PORT`.
 * A prompt with `[64 tokens, 20 ms]` is streamed at that pace.
 */
import { type Canned, cannedFor } from "./canned_answers.ts";

const TICK_MS = 5;
const BUFFER_BYTES = 256 * 1_024;
const TEXT_CHARS_MAX = 4_096;
const decoder = new TextDecoder("latin1");

/** Who waits for which time: one timer for all streams. */
let waiting: { untilMs: number; resolve: () => void }[] = [];

function wake(): void {
  const nowMs = performance.now();
  const due = waiting.filter(({ untilMs }) => untilMs <= nowMs);
  if (due.length === 0) return;
  waiting = waiting.filter(({ untilMs }) => untilMs > nowMs);
  for (const { resolve } of due) resolve();
}

async function write(connection: Deno.Conn, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.length;) {
    at += await connection.write(bytes.subarray(at));
  }
}

async function answer(
  connection: Deno.Conn,
  canned: Canned,
  body: string,
): Promise<void> {
  const [, tokens, paceMs] = /\[(\d+) tokens, (\d+) ms\]/.exec(body) ?? [];
  if (tokens === undefined) return await write(connection, canned.whole);
  await write(connection, canned.start);
  let untilMs = performance.now();
  for (let left = Number(tokens); left > 0; left -= 1) {
    await write(connection, canned.token);
    untilMs += Number(paceMs);
    await new Promise<void>((resolve) => waiting.push({ untilMs, resolve }));
  }
  const isCounted = /"include_usage": *true/.test(body);
  await write(connection, canned.end(isCounted));
}

/** Answers one request after the other, until the client leaves. */
async function serve(connection: Deno.TcpConn): Promise<void> {
  connection.setNoDelay(true);
  const buffer = new Uint8Array(BUFFER_BYTES);
  let text = "";
  let received = 0;
  while (true) {
    const count = await connection.read(buffer);
    if (count === null) return;
    // The head of a long request is enough: only short ones order a stream.
    const room = Math.min(count, TEXT_CHARS_MAX - text.length);
    text += decoder.decode(buffer.subarray(0, room));
    received += count;
    const headEnd = text.indexOf("\r\n\r\n");
    if (headEnd < 0) continue;
    const length = /content-length: *(\d+)/i.exec(text.slice(0, headEnd))?.[1];
    if (received < headEnd + 4 + Number(length ?? 0)) continue;
    const [, path = ""] = text.slice(0, headEnd).split(/[ ?]/, 2);
    const body = text.slice(headEnd + 4);
    text = "";
    received = 0;
    await answer(connection, cannedFor(path, body), body);
  }
}

const port = Number(Deno.args[0]);
const listener = Deno.listen({ hostname: "127.0.0.1", port });
setInterval(wake, TICK_MS);
for await (const connection of listener) {
  void serve(connection).catch(() => {}).finally(() => connection.close());
}
