/**
 * Guarantee: the server notices within 100 ms that a client has left, whatever it had
 * sent and however it leaves, and does not wait for a client that reads nothing.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { SERVER_LIMITS } from "@gateway/shared/limits";
import { settlesWithin } from "@gateway/shared/process/lifecycle/serve";
import { startStopwatch, until } from "../../../tests/support/wait_for.ts";
import type { Exchange } from "./exchange.ts";
import { type ServerOptions, startServer } from "./server.ts";

const NOTICED_MS = 100;
const LIMITS = { ...SERVER_LIMITS, checkMs: 10, restBytesPerMs: 1_000_000 };
const STOP_NOW = { graceMs: 0, abortMs: 0 };

async function start(
  handler: (exchange: Exchange) => void | Promise<void>,
  options: Partial<ServerOptions> = {},
) {
  const errors: unknown[] = [];
  const server = await startServer({
    hostname: "127.0.0.1",
    port: 0,
    handler: async (exchange) => await handler(exchange),
    ...options,
    onError: (error) => void errors.push(error),
  });
  return {
    server,
    errors,
    [Symbol.asyncDispose]: () => server.stop(STOP_NOW),
  };
}

/** A server whose handler reads the body and leaves the answer to the test. */
async function startCalls() {
  const calls: Exchange[] = [];
  const started = await start(async (exchange) => {
    for await (const _piece of exchange.openBody());
    calls.push(exchange);
  });
  const next = () => until(() => calls.shift());
  return Object.assign(started, { next });
}

/** The text of a request with a body of this many bytes; null: without one. */
const requestOf = (bytes: number | null): [head: string, body: string] => [
  bytes === null
    ? "GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    : `POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${bytes}\r\n\r\n`,
  "a".repeat(bytes ?? 0),
];

async function openSocket(port: number, { allowHalfOpen = false } = {}) {
  const where = { port, host: "127.0.0.1", allowHalfOpen, noDelay: true };
  const socket = connect(where);
  await once(socket, "connect");
  return socket;
}

/** Collects what a socket receives. */
function readText(socket: Socket): { readonly text: string } {
  const read = { text: "" };
  socket.on("data", (data) => {
    read.text += data;
  });
  return read;
}

for (const bodyBytes of [null, 0, 600, 100_000]) {
  for (const isSplit of [false, true]) {
    for (const way of ["FIN", "RST", "half-close"]) {
      const how = isSplit ? "after its head" : "in one piece";
      Deno.test(`a client of a body of ${bodyBytes} bytes, sent ${how}, that leaves by ${way} is noticed`, async () => {
        await using calls = await startCalls();
        const socket = await openSocket(calls.server.port, {
          allowHalfOpen: true,
        });
        const [head, rest] = requestOf(bodyBytes);
        if (isSplit) {
          await new Promise((resolve) => socket.write(head, resolve));
          socket.write(rest);
        } else socket.write(head + rest);
        const { socket: client, response, onClose } = await calls.next();
        assert.equal(client.destroyed, false);
        const left = Promise.withResolvers<number[]>();
        using watch = startStopwatch();
        onClose.push(() => left.resolve([watch.ms, response.statusCode]));
        if (way === "RST") socket.resetAndDestroy();
        else if (way === "FIN") socket.destroy();
        else socket.end();
        const [tookMs = Infinity, status] = await left.promise;
        assert.ok(tookMs < NOTICED_MS, `after ${tookMs} ms`);
        assert.deepEqual([client.destroyed, status], [true, 499]);
        socket.destroy();
      });
    }
  }
}

Deno.test("a client that still sends when its connection ends gets the answer, and no reset", async () => {
  const heads = [
    "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n",
  ];
  for (const head of heads) {
    await using started = await start(({ response }) => {
      response.setHeader("connection", "close").end("the answer");
    });
    const socket = await openSocket(started.server.port, {
      allowHalfOpen: true,
    });
    const faults: Error[] = [];
    socket.on("error", (error) => faults.push(error));
    const read = readText(socket);
    const closed = once(socket, "close");
    socket.write(head);
    await Promise.race([once(socket, "end"), closed]);
    // What it had begun before it could know.
    for (let piece = 0; piece < 20 && !socket.destroyed; piece += 1) {
      await new Promise((resolve) => socket.write("a".repeat(10_000), resolve));
    }
    socket.end();
    await closed;
    assert.deepEqual(faults, []);
    assert.match(read.text, /^HTTP\/1\.1 200 [^]*the answer$/);
  }
});

Deno.test("an answer that breaks off at once arrives as far as it goes", async () => {
  await using started = await start(({ response }) => {
    response.sendHead(200, {}).write("half");
    response.destroy();
    return Promise.resolve();
  });
  const socket = await openSocket(started.server.port);
  const read = readText(socket);
  socket.write(requestOf(null).join(""));
  await once(socket, "close");
  assert.match(read.text, /^HTTP\/1\.1 200 [^]*half\r\n$/);
});

Deno.test("a body that is not read does not hold up the next request of the connection", async () => {
  await using started = await start(({ response }) =>
    void response.end("refused")
  );
  const socket = await openSocket(started.server.port);
  const read = readText(socket);
  for (let count = 1; count <= 2; count += 1) {
    socket.write(requestOf(4_000_000).join(""));
    await until(() => read.text.split("refused").length > count);
  }
  socket.destroy();
});

Deno.test("a client that does not read the end of its answer is disconnected", async () => {
  const left = Promise.withResolvers<void>();
  await using started = await start(({ response, socket }) => {
    socket.once("close", () => left.resolve());
    response.end(new Uint8Array(32 * 1024 * 1024));
  }, { limits: { ...LIMITS, restMs: 50 } });
  using connection = await Deno.connect({ port: started.server.port });
  await connection.write(new TextEncoder().encode(requestOf(null)[0]));
  await left.promise;
});

Deno.test("an idle connection is closed, but not while a request is answered", async () => {
  const calls: Exchange[] = [];
  await using started = await start((exchange) => {
    calls.push(exchange);
  }, { limits: { ...LIMITS, idleMs: 50 } });
  const socket = await openSocket(started.server.port);
  const ended = once(socket.resume(), "close");
  socket.write(requestOf(null)[0]);
  const { response } = await until(() => calls.shift());
  assert.equal(await settlesWithin(ended, 200), false);
  response.end("answer");
  await ended;
});

Deno.test("a client that sends on and on without waiting for answers is disconnected", async () => {
  let calls = 0;
  const limits = { ...LIMITS, callsMax: 3 };
  await using started = await start(() => void calls++, { limits });
  const [head] = requestOf(null);
  const chunked = head.replace("\n\r", "\nTransfer-Encoding: chunked\r\n\r");
  const pieces = `${chunked}${"1\r\na\r\n".repeat(10_000)}`;
  for (const [most, flood] of [[3, head.repeat(1_000)], [4, pieces]] as const) {
    const socket = await openSocket(started.server.port);
    socket.on("error", () => {}); // Perhaps a reset.
    socket.write(flood);
    await until(() => socket.destroyed);
    assert.equal(calls, most);
  }
});

Deno.test("stop() lets a running answer end, and waits for no idle connection", async () => {
  await using calls = await startCalls();
  const { server, next } = calls;
  const idle = await openSocket(server.port);
  const init = { method: "POST", body: "a".repeat(3_000) };
  const response = fetch(`http://127.0.0.1:${server.port}/`, init);
  const { response: answer } = await next();
  using watch = startStopwatch();
  const stopped = server.stop({ graceMs: 5_000, abortMs: 100 });
  answer.end("whole");
  assert.equal(await (await response).text(), "whole");
  await stopped;
  assert.ok(watch.ms < 1_500);
  idle.destroy();
});

Deno.test("stop() answers the request that follows one whose answer had promised more", async () => {
  await using calls = await startCalls();
  const { server, next } = calls;
  const socket = await openSocket(server.port);
  const closed = once(socket, "close");
  const received = readText(socket);
  const request = requestOf(10).join("");
  socket.write(request);
  const first = await next();
  first.response.sendHead(200, { "content-length": "5" }).flushHeaders();
  await until(() => received.text.includes("keep-alive"));
  const stopped = server.stop({ graceMs: 5_000, abortMs: 100 });
  first.response.end("first");
  await until(() => received.text.endsWith("first"));
  socket.write(request);
  const second = await next();
  second.response.sendHead(200, { "content-length": "6" }).end("second");
  await until(() => received.text.endsWith("second"));
  assert.match(received.text.split("first")[1] ?? "", /connection: close/i);
  await Promise.all([stopped, closed]);
});

Deno.test("stop() waits for no request that does not come", async () => {
  await using calls = await startCalls();
  const { server, next } = calls;
  const socket = await openSocket(server.port);
  const closed = once(socket, "close");
  socket.resume().write(requestOf(10).join(""));
  const { response } = await next();
  response.sendHead(200, { "content-length": "5" }).flushHeaders();
  const stopped = server.stop({ graceMs: 60_000, abortMs: 100 });
  using watch = startStopwatch();
  response.end("first");
  await Promise.all([stopped, closed]);
  assert.ok(watch.ms < 30_000, `${watch.ms} ms`);
});

Deno.test("stop() cuts responses that ignore the end of the grace period", async () => {
  await using calls = await startCalls();
  const { server, next } = calls;
  const socket = await openSocket(server.port);
  const closed = once(socket, "close");
  socket.write(requestOf(10).join(""));
  await next();
  await server.stop({ graceMs: 10, abortMs: 10 });
  await closed;
  assert.equal(server.stopping.aborted, true);
});

Deno.test("a handler that rejects is reported, and its connection closed", async () => {
  const fault = new Error("a fault");
  await using started = await start(() => Promise.reject(fault));
  await assert.rejects(fetch(`http://127.0.0.1:${started.server.port}/`));
  assert.deepEqual(started.errors, [fault]);
});

Deno.test("the head of a request arrives decoded, its repeated fields joined", async () => {
  const errors: unknown[] = [];
  await using started = await start(({ method, path, headers, response }) => {
    errors.push([method, path, headers["x-a"]]);
    response.end();
  });
  const socket = await openSocket(started.server.port);
  const targets = ["/a%20b?c#d", "http://Other.example/v1/x/?y", "/%zz", "*"];
  for (const [index, target] of targets.entries()) {
    const fields = "Host: X\r\nX-A: 1\r\nx-a: 2\r\n";
    socket.write(`OPTIONS ${target} HTTP/1.1\r\n${fields}\r\n`);
    await until(() => errors.length > index);
  }
  const paths = ["/a b", "/v1/x", "/%zz", "*"];
  assert.deepEqual(errors, paths.map((path) => ["OPTIONS", path, "1, 2"]));
  socket.destroy();
});
