/** HTTP connections to model servers. */
import assert from "node:assert/strict";
import { monotonicNow } from "../../process/clock.ts";
import { Deadlines } from "../../process/deadlines.ts";
import {
  connectTo,
  type Reply,
  startScriptedServer,
} from "../../../tests/support/model_servers/scripted_server.ts";
import {
  chunk,
  jsonResponse,
  lastChunk,
  streamHead,
} from "../../../tests/support/model_servers/model_answers.ts";
import { everySplit } from "./bytes_fixture.ts";
import { AttemptDeadlines } from "./attempt_deadlines.ts";
import type { UpstreamFault } from "./errors.ts";
import type { ByteConnection } from "./proxy.ts";
import { type Connect, createConnect } from "./connect.ts";
import { HttpClient, type HttpConnection } from "./client.ts";
import { startStopwatch, until } from "../../../tests/support/wait_for.ts";

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const REQUEST = encoder.encode(
  "POST /v1/x HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}",
);

const ANY_PORT = { port: 0, hostname: "127.0.0.1" };

function clientOf(port: number, connectMs = 2_000): HttpClient {
  const connect = createConnect(new URL(`http://127.0.0.1:${port}`));
  return new HttpClient(connect, connectMs);
}

function rig(reply: Reply) {
  const server = startScriptedServer({ reply });
  const client = clientOf(server.port);
  return {
    server,
    client,
    async [Symbol.asyncDispose]() {
      client.close();
      await server[Symbol.asyncDispose]();
    },
  };
}

function newDeadlines(signal = new AbortController().signal): AttemptDeadlines {
  const watched = new Deadlines(monotonicNow);
  watched.closeWhenIdle();
  return new AttemptDeadlines({
    deadlines: watched,
    now: monotonicNow,
    callSignal: signal,
    totalMs: 5_000,
  });
}

async function begin(
  client: HttpClient,
  deadlines = newDeadlines(),
  request: Uint8Array = REQUEST,
): Promise<HttpConnection & { status: number }> {
  const connection = await client.connection(deadlines);
  try {
    const head = await connection.exchange([request], deadlines);
    return Object.assign(connection, { status: head?.status ?? 0 });
  } catch (error) {
    connection.close();
    throw error;
  }
}

async function exchange(
  client: HttpClient,
  request: Uint8Array = REQUEST,
  sendMs = 5_000,
): Promise<{ status: number; body: string }> {
  const deadlines = newDeadlines();
  deadlines.arm("firstToken", sendMs);
  try {
    const response = await begin(client, deadlines, request);
    const body = await response.readText();
    response.release({ isDone: true });
    return { status: response.status, body };
  } finally {
    deadlines.dispose();
  }
}

const ok = "HTTP/1.1 200 OK\r\n";

Deno.test("a response with interim ones before it is read however it is cut", async () => {
  const text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n" +
    `link: </x>\r\n\r\n${ok}transfer-encoding: chunked\r\n\r\n` +
    "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\na: b\r\n\r\n";
  for (const pieces of everySplit(text)) {
    const connect = connectTo(() => pieces.map((send) => ({ send })));
    const client = new HttpClient(connect, 2_000);
    assert.deepEqual(await exchange(client), { status: 200, body: "hello" });
    client.close();
  }
});

Deno.test("a server that hangs up within the head, or switches protocols, is at fault", async () => {
  const interim = "HTTP/1.1 100 Continue\r\n\r\n";
  const rows: [head: string, fault: UpstreamFault][] = [
    [ok, "truncated"],
    [interim, "truncated"],
    ["HTTP/1.1 101 Switching Protocols\r\n\r\n", "invalid"],
  ];
  for (const [send, fault] of rows) {
    await using r = rig(() => [{ send }, { close: true }]);
    await assert.rejects(exchange(r.client), { fault });
  }
});

Deno.test("HttpClient takes a head of up to 16 KiB", async () => {
  const start = `${ok}content-length: 0\r\nx: `;
  for (const more of [0, 1]) {
    const filler = "a".repeat(16 * 1024 - start.length - 4 + more);
    await using r = rig(() => [{ send: `${start}${filler}\r\n\r\n` }]);
    if (more === 0) assert.equal((await exchange(r.client)).status, 200);
    else await assert.rejects(exchange(r.client), { fault: "invalid" });
  }
});

Deno.test("a connection is not used again that the response closes, or is followed by more bytes", async () => {
  const empty = "content-length: 0\r\n\r\n";
  const rows = [`${ok}connection: close\r\n${empty}`, `${ok}${empty}more`];
  for (const send of [...rows, `HTTP/1.0 200 OK\r\n${empty}`]) {
    await using r = rig(() => [{ send }]);
    await exchange(r.client);
    await exchange(r.client);
    assert.equal(r.server.connections, 2);
  }
});

Deno.test("HttpClient notices when a server ends an idle connection", async () => {
  const hangUp = Promise.withResolvers<void>();
  await using r = rig(function* () {
    yield* jsonResponse({});
    yield { until: hangUp.promise };
    yield { close: true };
  });
  await exchange(r.client);
  hangUp.resolve();
  await until(() => r.client.idle.length === 0);
  await exchange(r.client);
  assert.equal(r.server.connections, 2);
});

Deno.test("a connection that was idle for a whole period is closed, and no other", async () => {
  const go = Promise.withResolvers<void>();
  await using r = rig(function* ({ number }) {
    if (number <= 3) yield { until: go.promise };
    yield* jsonResponse({});
  });
  const { client, server } = r;
  const first = [1, 2, 3].map(() => exchange(client));
  await server.request(3);
  go.resolve();
  await Promise.all(first);
  const [a, b, c] = client.idle;
  client.closeUnused();
  assert.deepEqual(client.idle, [a, b, c], "since this period");
  await exchange(client);
  client.closeUnused();
  assert.deepEqual(client.idle, [c]);
  await until(() => server.openConnections === 1);
  client.closeUnused();
  await until(() => server.openConnections === 0);
});

Deno.test("release() keeps a connection whose body ends a little later", async () => {
  const end = Promise.withResolvers<void>();
  await using r = rig(function* () {
    yield streamHead();
    yield chunk("all that matters");
    yield { until: end.promise };
    yield lastChunk;
  });
  const deadlines = newDeadlines();
  const response = await begin(r.client, deadlines);
  assert.equal(
    decoder.decode(await response.read() ?? undefined),
    "all that matters",
  );
  deadlines.dispose();
  response.release({ isDone: true });
  end.resolve();
  await until(() => r.client.idle.length === 1);
  await exchange(r.client);
  assert.equal(r.server.connections, 1);
});

Deno.test("release() gives up a connection whose body goes on", async () => {
  await using r = rig(async function* () {
    yield streamHead();
    for (;;) {
      yield chunk("x".repeat(8 * 1024));
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  });
  const deadlines = newDeadlines();
  const response = await begin(r.client, deadlines);
  await response.read();
  deadlines.dispose();
  response.release({ isDone: true });
  const request = await r.server.request(1);
  await request.left;
  assert.ok(request.bytesSent < 8 * 1024 * 1024);
});

Deno.test("HttpClient takes an answer that comes before the request is out", async () => {
  using listener = Deno.listen(ANY_PORT);
  const served = listener.accept().then(async (conn) => {
    await conn.read(new Uint8Array(1024));
    const head = "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno";
    await conn.write(encoder.encode(head));
    return conn;
  });
  const client = clientOf(listener.addr.port);
  // More than the buffers of both kernels hold, so that the write cannot end.
  const request = new Uint8Array(32 * 1024 * 1024).fill(0x20);
  request.set(REQUEST);
  const { status, body } = await exchange(client, request);
  assert.deepEqual([status, body], [413, "no"]);
  const conn = await served;
  client.close();
  conn.close();
});

Deno.test("HttpClient times out on a server that stops reading the request", async () => {
  using listener = Deno.listen(ANY_PORT);
  const accepted = listener.accept();
  const client = clientOf(listener.addr.port);
  await assert.rejects(
    exchange(client, new Uint8Array(32 * 1024 * 1024), 100),
    { fault: "timeout" },
  );
  (await accepted).close();
});

Deno.test("HttpClient gives up connecting after connectMs, or when aborted", async () => {
  using listener = Deno.listen({ ...ANY_PORT, tcpBacklog: 1 });
  const { port } = listener.addr;
  const connect = createConnect(new URL(`http://127.0.0.1:${port}`));
  const client = new HttpClient(connect, 100);
  // No process accepts connections: after a few, the kernel ignores more.
  const connections: ByteConnection[] = [];
  for (let isFull = false; !isFull;) {
    const signal = AbortSignal.timeout(500);
    try {
      connections.push(await connect(signal));
    } catch {
      isFull = true;
    }
  }
  await assert.rejects(exchange(client), { fault: "timeout" });

  const controller = new AbortController();
  const reason = new Error("Client left");
  const deadlines = newDeadlines(controller.signal);
  const sending = begin(client, deadlines);
  using watch = startStopwatch();
  controller.abort(reason);
  await assert.rejects(sending, reason);
  assert.ok(watch.ms < 50);
  deadlines.dispose();
  for (const conn of connections) conn.close();
});

Deno.test("HttpClient closes a connection that is made in spite of the abort", async () => {
  const connection = Promise.withResolvers<ByteConnection>();
  let closed = 0;
  const connect: Connect = () => connection.promise;
  const client = new HttpClient(connect, 2_000);
  const controller = new AbortController();
  const deadlines = newDeadlines(controller.signal);
  const sending = begin(client, deadlines);
  controller.abort(new Error("Client left"));
  const fail = () => Promise.reject(new Deno.errors.BadResource("Closed"));
  connection.resolve({ read: fail, write: fail, close: () => closed++ });
  await assert.rejects(sending, /Client left/);
  assert.equal(closed, 1);
  deadlines.dispose();
});

Deno.test("close() ends idle connections, and running ones are not kept", async () => {
  const go = Promise.withResolvers<void>();
  await using r = rig(function* (request) {
    if (request.number === 2) yield { until: go.promise };
    yield* jsonResponse({});
  });
  await exchange(r.client);
  const running = exchange(r.client);
  await r.server.request(2);
  r.client.close();
  go.resolve();
  assert.equal((await running).status, 200);
  await until(() => r.server.openConnections === 0);
});
