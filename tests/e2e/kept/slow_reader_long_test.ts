// Promises: a client that takes a byte a second for minutes loses nothing of an answer
// that its connection can hold, and holds up no worker. A longer answer that is kept
// goes on without it, and the client can read on where it was.
import assert from "node:assert/strict";
import type { LimitedGateway, TestKey } from "../../support/gateway/limited.ts";
import { sleep, until, waitFor } from "../../support/wait_for.ts";
import { contentOf, getKept, startKeeping } from "./kept_rig.ts";

/** Twice as long as a client that takes nothing keeps its connection. */
const SLOW_BYTES = 130;
const BYTE_MS = 1_000;
const PIECE = "x".repeat(1_000);
/** 200 kB of text; a long answer of a chat has 100. */
const USUAL_PIECES = 200;
/** More than a connection holds, less than an answer may have. */
const LONG_PIECES = 9_000;
const DROPPED_MS = 120_000;
/** Deadlines as they are deployed, since the client reads in real time. */
const SLOW = { slower: 1, workerSlower: 1, requestTimeoutMs: 300_000 };

/** Asks for a stream by HTTP/1.0, whose answer is as it is, and ends with its connection. */
async function askRaw(
  gateway: LimitedGateway,
  { value }: TestKey,
  header = "x-gateway-priority: batch",
): Promise<Deno.TcpConn> {
  const { hostname, port } = new URL(gateway.baseUrl());
  const connection = await Deno.connect({ hostname, port: Number(port) });
  const body = JSON.stringify({
    model: "neutral-3.7-plus",
    messages: [{ role: "user", content: "hello" }],
    stream: true,
  });
  const head = [
    "POST /v1/chat/completions HTTP/1.0",
    `host: ${hostname}`,
    `authorization: Bearer ${value}`,
    "content-type: application/json",
    `content-length: ${body.length}`,
    header,
  ].join("\r\n");
  const request = new TextEncoder().encode(`${head}\r\n\r\n${body}`);
  await connection.write(request);
  return connection;
}

/** Reads at most `count` bytes, one a second. */
async function readSlowly(
  connection: Deno.TcpConn,
  count: number,
): Promise<string> {
  const byte = new Uint8Array(1);
  let text = "";
  for (; text.length < count; await sleep(BYTE_MS)) {
    if (await connection.read(byte) === null) break;
    text += String.fromCharCode(...byte);
  }
  return text;
}

/** Has the model server say `pieces` pieces to its `nth` request. */
async function answer(
  gateway: LimitedGateway,
  nth: number,
  pieces: number,
): Promise<void> {
  const call = await until(() => gateway.backend.calls[nth]);
  for (let at = 0; at < pieces; at += 1) call.say(PIECE);
  call.end(pieces);
}

const KEEP = "x-gateway-keep: 600";

/** An answer that the connection of a slow client holds comes whole. */
async function comesWhole(header?: string): Promise<void> {
  await using gateway = await startKeeping(SLOW);
  const key = await gateway.addKey();
  using connection = await askRaw(gateway, key, header);
  await answer(gateway, 0, USUAL_PIECES);
  const reading = readSlowly(connection, SLOW_BYTES);
  await gateway.settled(key);
  await until(() => gateway.worker.worker.jobCount === 0);
  const begin = await reading;
  assert.equal(begin.length, SLOW_BYTES);
  const rest = await new Response(connection.readable).text();
  assert.equal(contentOf(begin + rest), PIECE.repeat(USUAL_PIECES));
  assert.match(rest, /data: \[DONE\]\n\n$/);
}

/** A kept answer that its connection cannot hold goes on, and is read on whole. */
async function goesOnAlone(): Promise<void> {
  await using gateway = await startKeeping(SLOW);
  const key = await gateway.addKey();
  using connection = await askRaw(gateway, key, KEEP);
  const answering = answer(gateway, 0, LONG_PIECES);
  const reading = readSlowly(connection, SLOW_BYTES);
  await answering;
  const [, other = assert.fail()] = gateway.edges;
  await waitFor(() => gateway.worker.worker.jobCount === 0, {
    what: "the run to end without its reader",
    timeoutMs: DROPPED_MS,
  });
  await gateway.settled(key);
  const begin = await reading;
  const rest = await new Response(connection.readable).text().catch(() => "");
  const got = begin + rest;
  assert.doesNotMatch(got, /\[DONE\]/);
  const id = /x-gateway-answer: (\S+)/i.exec(got)?.[1] ?? assert.fail(got);
  const ids = [...got.matchAll(/^id: (\d+)\ndata: .*\n\n/gm)];
  const after = ids.at(-1)?.[1] ?? "0";
  const last = ids.at(-1);
  const whole = got.slice(0, (last?.index ?? 0) + (last?.[0].length ?? 0));
  const resumed = await getKept([gateway, key], `${id}?after=${after}`);
  const text = contentOf(whole) + contentOf(await resumed.text());
  assert.ok(text === PIECE.repeat(LONG_PIECES), `${text.length} characters`);
  assert.equal(gateway.backend.calls.length, 1);
  assert.equal(other.dispatcher.running, 0);
}

// Together, because each of them waits for two minutes.
Deno.test("clients that take a byte a second for two minutes get all of an answer, and no worker waits", async () => {
  await Promise.all([comesWhole(), comesWhole(KEEP), goesOnAlone()]);
});
