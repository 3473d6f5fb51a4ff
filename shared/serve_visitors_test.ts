/**
 * Guarantee: the server knows within 100 ms that a client has left, whatever it had
 * sent and however; and what passes through is what was sent.
 */
import assert from "node:assert/strict";
import { connect, type Socket } from "node:net";
import { forVisitors, serveVisitors, type Visitor } from "./serve_visitors.ts";

const options = {
  hostname: "127.0.0.1",
  port: 0,
  onError: () => new Response(null, { status: 500 }),
};
const NOTICED_MS = 100;
const STOP_NOW = { graceMs: 0, lastWordMs: 0 };

/** Text of a request with a body of so many bytes; null: none. */
function requestOf(bodyBytes: number | null): [head: string, body: string] {
  if (bodyBytes === null) return ["GET / HTTP/1.1\r\nhost: x\r\n\r\n", ""];
  return [
    `POST / HTTP/1.1\r\nhost: x\r\ncontent-length: ${bodyBytes}\r\n\r\n`,
    "a".repeat(bodyBytes),
  ];
}

/** A request in progress: the visitor, and the answer that the handler waits for. */
interface Call {
  visitor: Visitor;
  answer: (response: Response) => void;
}

/** A server whose handler reads the body and waits to be told the answer. */
function startCalls() {
  const waiting: PromiseWithResolvers<Call>[] = [];
  const made: Call[] = [];
  const server = serveVisitors({
    ...options,
    handler: async (request, visitor) => {
      await request.arrayBuffer();
      const { promise, resolve } = Promise.withResolvers<Response>();
      const call = { visitor, answer: resolve };
      const next = waiting.shift();
      if (next === undefined) made.push(call);
      else next.resolve(call);
      return await promise;
    },
  });
  return {
    server,
    next(): Promise<Call> {
      const call = made.shift();
      if (call !== undefined) return Promise.resolve(call);
      const later = Promise.withResolvers<Call>();
      waiting.push(later);
      return later.promise;
    },
  };
}

function openSocket(port: number, allowHalfOpen = false): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const where = { port, host: "127.0.0.1", allowHalfOpen };
    const socket = connect(where, () => {
      socket.setNoDelay(true);
      resolve(socket);
    });
    socket.on("error", reject);
  });
}

const BODIES = [null, 0, 50, 600, 1_024, 5_000, 100_000];
const SPLITS = ["in one piece", "after its head", "long after its head"];
const WAYS = ["FIN", "RST"];

for (const bodyBytes of BODIES) {
  for (const split of bodyBytes === null ? SPLITS.slice(0, 1) : SPLITS) {
    for (const way of WAYS) {
      const body = bodyBytes === null ? "no body" : `${bodyBytes} bytes`;
      Deno.test(`a client of ${body}, sent ${split}, that leaves by ${way} is noticed`, async () => {
        const { server, next } = startCalls();
        const socket = await openSocket(server.port);
        const [head, rest] = requestOf(bodyBytes);
        if (split === "in one piece") socket.write(head + rest);
        else {
          await new Promise((resolve) => socket.write(head, resolve));
          if (split.startsWith("long")) {
            await new Promise((resolve) => setTimeout(resolve, 20));
          }
          socket.write(rest);
        }
        const { visitor, answer } = await next();
        assert.equal(visitor.hasLeft, false);
        const left = Promise.withResolvers<number>();
        visitor.onLeft(() => left.resolve(performance.now()));
        const leftAtMs = performance.now();
        if (way === "RST") socket.resetAndDestroy();
        else socket.destroy();
        const tookMs = await left.promise - leftAtMs;
        assert.ok(tookMs < NOTICED_MS, `after ${tookMs} ms`);
        assert.equal(visitor.hasLeft, true);
        answer(new Response("to nobody"));
        await server.stop(STOP_NOW);
      });
    }
  }
}

Deno.test("onLeft() of a client that has left calls back, but not at once", async () => {
  const { server, next } = startCalls();
  const socket = await openSocket(server.port);
  socket.write(requestOf(10).join(""));
  const { visitor, answer } = await next();
  const left = Promise.withResolvers<void>();
  visitor.onLeft(left.resolve);
  socket.destroy();
  await left.promise;
  let isCalled = false;
  const called = new Promise<void>((resolve) =>
    visitor.onLeft(() => {
      isCalled = true;
      resolve();
    })
  );
  assert.equal(isCalled, false);
  await called;
  answer(new Response());
  await server.stop(STOP_NOW);
});

Deno.test("a request that is over is not told that its connection ends", async () => {
  const { server, next } = startCalls();
  const { port } = server;
  const socket = await openSocket(port);
  const told: string[] = [];
  const answered = () => new Promise((resolve) => socket.once("data", resolve));
  const visitors: Visitor[] = [];
  for (const name of ["first", "second"]) {
    socket.write(requestOf(2_000).join(""));
    const { visitor, answer } = await next();
    visitors.push(visitor);
    const forget = visitor.onLeft(() => told.push(name));
    forget();
    const read = answered();
    answer(new Response(name));
    await read;
  }
  socket.write(requestOf(2_000).join(""));
  const { visitor, answer } = await next();
  const left = new Promise<void>((resolve) =>
    visitor.onLeft(() => {
      told.push("third");
      resolve();
    })
  );
  assert.ok(visitors.every((each) => each === visitor), "one connection");
  assert.equal(visitor.address, "127.0.0.1");
  socket.destroy();
  await left;
  assert.deepEqual(told, ["third"]);
  answer(new Response());
  await server.stop(STOP_NOW);
});

Deno.test("what passes through is what was sent, both ways", async () => {
  const bytes = new Uint8Array(5 * 1024 * 1024);
  for (let index = 0; index < bytes.length; index += 1) {
    bytes[index] = index * 31 % 251;
  }
  const server = serveVisitors({
    ...options,
    handler: async (request) => new Response(await request.arrayBuffer()),
  });
  const answers = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const response = await fetch(`http://127.0.0.1:${server.port}/`, {
        method: "POST",
        body: bytes,
      });
      return new Uint8Array(await response.arrayBuffer());
    }),
  );
  for (const answer of answers) assert.deepEqual(answer, bytes);
  await server.stop(STOP_NOW);
});

Deno.test("a client that still sends when its connection ends gets the answer, and no reset", async () => {
  const server = serveVisitors({
    ...options,
    handler: () => new Response("the answer"),
  });
  const socket = await openSocket(server.port, true);
  const faults: Error[] = [];
  socket.on("error", (error) => faults.push(error));
  let text = "";
  socket.on("data", (data) => text += data);
  const ended = new Promise<void>((resolve) => socket.on("end", resolve));
  const closed = new Promise<void>((resolve) => socket.on("close", resolve));
  socket.write("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
  await Promise.race([ended, closed]);
  // What it had begun before it could know.
  for (let piece = 0; piece < 20 && !socket.destroyed; piece += 1) {
    await new Promise<void>((resolve) =>
      socket.write("a".repeat(10_000), () => resolve())
    );
  }
  socket.end();
  await closed;
  assert.deepEqual(faults, []);
  assert.match(text, /^HTTP\/1\.1 200 [^]*the answer$/);
  await server.stop(STOP_NOW);
});

Deno.test("a client that reads nothing stops what is sent to it", async () => {
  const piece = new Uint8Array(64 * 1024);
  let pulled = 0;
  const server = serveVisitors({
    ...options,
    handler: () =>
      new Response(
        new ReadableStream<Uint8Array>({
          pull(controller) {
            pulled += piece.length;
            controller.enqueue(piece);
          },
        }),
      ),
  });
  const connection = await Deno.connect({ port: server.port });
  await connection.write(new TextEncoder().encode(requestOf(null)[0]));
  let before = -1;
  // What the kernel takes for both connections, and then nothing more.
  while (pulled !== before || pulled === 0) {
    before = pulled;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  assert.ok(pulled < 64 * 1024 * 1024, `${pulled} bytes were taken`);
  connection.close();
  await server.stop(STOP_NOW);
});

Deno.test("who comes to the inner port by himself is sent away", async () => {
  const visitor: Visitor = {
    address: "192.0.2.1",
    hasLeft: false,
    onLeft: () => () => {},
  };
  const handle = forVisitors(
    new Map([[40_000, visitor]]),
    (_request, { address }) => new Response(address),
  );
  const from = async (port: number) => {
    const remoteAddr = {
      transport: "tcp",
      hostname: "127.0.0.1",
      port,
    } as const;
    const response = await handle(new Request("http://x/"), { remoteAddr });
    return [response.status, await response.text()];
  };
  assert.deepEqual(await from(40_000), [200, "192.0.2.1"]);
  assert.deepEqual(await from(40_001), [421, ""]);
});

Deno.test("a port that is taken is refused, and nothing is left", () => {
  const taken = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  assert.throws(
    () =>
      serveVisitors({
        ...options,
        port: taken.addr.port,
        handler: () => new Response(),
      }),
    Deno.errors.AddrInUse,
  );
  taken.close();
});

Deno.test("stop() lets a running answer end, and waits for no idle connection", async () => {
  const { server, next } = startCalls();
  const idle = await openSocket(server.port);
  const response = fetch(`http://127.0.0.1:${server.port}/`, {
    method: "POST",
    body: "a".repeat(3_000),
  });
  const { answer } = await next();
  const stoppedAtMs = performance.now();
  const stopped = server.stop({ graceMs: 5_000, lastWordMs: 100 });
  answer(new Response("whole"));
  assert.equal(await (await response).text(), "whole");
  await stopped;
  assert.ok(performance.now() - stoppedAtMs < 1_500);
  idle.destroy();
});

Deno.test("stop() cuts what ignores the end of the grace time", async () => {
  const { server, next } = startCalls();
  const socket = await openSocket(server.port);
  const closed = new Promise((resolve) => socket.on("close", resolve));
  socket.write(requestOf(10).join(""));
  const { visitor, answer } = await next();
  const left = new Promise<void>((resolve) => visitor.onLeft(resolve));
  await server.stop({ graceMs: 10, lastWordMs: 10 });
  await Promise.all([closed, left]);
  assert.equal(server.stopping.aborted, true);
  answer(new Response());
});
