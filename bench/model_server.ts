/**
 * The model server behind all gateways of a run: canned answers over plain sockets,
 * so that it costs little. `deno run --allow-net bench/model_server.ts PORT`.
 * A prompt with `[64 tokens, 20 ms]` is streamed at that pace.
 */

const TICK_MS = 5;
const BUFFER_BYTES = 256 * 1_024;
const TEXT_CHARS_MAX = 4_096;
const encoder = new TextEncoder();
const decoder = new TextDecoder("latin1");

const COMMON = { id: "chatcmpl-bench", created: 1_767_225_600, model: "bench" };
const USAGE = { prompt_tokens: 20, completion_tokens: 9, total_tokens: 29 };
const content = "Of course. What can I do for you?";
const message = { role: "assistant", content };
const WHOLE = JSON.stringify({
  ...{ ...COMMON, object: "chat.completion", usage: USAGE },
  choices: [{ index: 0, message, finish_reason: "stop" }],
});
const HEAD = "HTTP/1.1 200 OK\r\ncontent-type: ";
const ANSWER = encoder.encode(
  `${HEAD}application/json\r\ncontent-length: ${WHOLE.length}\r\n\r\n${WHOLE}`,
);
const STREAM_HEAD = encoder.encode(
  `${HEAD}text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n`,
);
const TOKEN = encoder.encode(
  event({ index: 0, delta: { content: " word" }, finish_reason: null }),
);
const LAST = event({ index: 0, delta: {}, finish_reason: "stop" });
const DONE = `${chunk("data: [DONE]\n\n")}0\r\n\r\n`;

function event(choice: object | null, usage?: object): string {
  const choices = choice === null ? [] : [choice];
  const object = "chat.completion.chunk";
  const text = JSON.stringify({ ...COMMON, object, choices, usage });
  return chunk(`data: ${text}\n\n`);
}

function chunk(text: string): string {
  return `${text.length.toString(16)}\r\n${text}\r\n`;
}

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

async function answer(connection: Deno.Conn, body: string): Promise<void> {
  const [, tokens, paceMs] = /\[(\d+) tokens, (\d+) ms\]/.exec(body) ?? [];
  if (tokens === undefined) return await write(connection, ANSWER);
  await write(connection, STREAM_HEAD);
  let untilMs = performance.now();
  for (let left = Number(tokens); left > 0; left -= 1) {
    await write(connection, TOKEN);
    untilMs += Number(paceMs);
    await new Promise<void>((resolve) => waiting.push({ untilMs, resolve }));
  }
  const isCounted = /"include_usage": *true/.test(body);
  const end = LAST + (isCounted ? event(null, USAGE) : "") + DONE;
  await write(connection, encoder.encode(end));
}

/** Answers one request after the other, until the client leaves. */
async function serve(connection: Deno.TcpConn): Promise<void> {
  connection.setNoDelay(true);
  const buffer = new Uint8Array(BUFFER_BYTES);
  let text = "";
  let received = 0;
  for (let count; (count = await connection.read(buffer)) !== null;) {
    // Of a long request the head is enough: only short ones order a stream.
    const wanted = Math.min(count, TEXT_CHARS_MAX - text.length);
    text += decoder.decode(buffer.subarray(0, wanted));
    received += count;
    const headEnd = text.indexOf("\r\n\r\n");
    if (headEnd < 0) continue;
    const length = /content-length: *(\d+)/i.exec(text.slice(0, headEnd))?.[1];
    if (received < headEnd + 4 + Number(length ?? 0)) continue;
    const body = text.slice(headEnd + 4);
    text = "";
    received = 0;
    await answer(connection, body);
  }
}

const port = Number(Deno.args[0]);
const listener = Deno.listen({ hostname: "127.0.0.1", port });
setInterval(wake, TICK_MS);
for await (const connection of listener) {
  void serve(connection).catch(() => {}).finally(() => connection.close());
}
