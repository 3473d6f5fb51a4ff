import assert from "node:assert/strict";
import { startTcpProxy, type TcpProxy } from "./tcp_proxy.ts";
import { waitFor } from "./wait_for.ts";

const ASCII = { encoder: new TextEncoder(), decoder: new TextDecoder() };

/** A server that sends back what it gets. */
function startEcho(): AsyncDisposable & { port: number } {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const done = (async () => {
    for await (const connection of listener) {
      void connection.readable.pipeTo(connection.writable).catch((error) => {
        assert.ok(error instanceof Error);
      });
    }
  })();
  return {
    port: listener.addr.port,
    [Symbol.asyncDispose]: async () => {
      listener.close();
      await done;
    },
  };
}

async function echo(connection: Deno.Conn, text: string): Promise<string> {
  await connection.write(ASCII.encoder.encode(text));
  const buffer = new Uint8Array(1024);
  const length = await connection.read(buffer) ?? 0;
  return ASCII.decoder.decode(buffer.subarray(0, length));
}

const dial = (proxy: TcpProxy) =>
  Deno.connect({ hostname: "127.0.0.1", port: proxy.port });

Deno.test("delayMs holds every piece back, and pieces share the wait", async () => {
  await using server = startEcho();
  await using proxy = startTcpProxy(server.port);
  using connection = await dial(proxy);
  assert.equal(await echo(connection, "warm"), "warm");
  proxy.set({ delayMs: 50 });
  const startedAt = performance.now();
  assert.equal(await echo(connection, "late"), "late");
  assert.ok(performance.now() - startedAt >= 100, "once up and once down");
});

Deno.test("blackHole holds bytes until it is healed", async () => {
  await using server = startEcho();
  await using proxy = startTcpProxy(server.port);
  using connection = await dial(proxy);
  assert.equal(await echo(connection, "warm"), "warm");
  proxy.set({ blackHole: "down" });
  let answer: string | undefined;
  const asked = echo(connection, "held").then((text) => answer = text);
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(answer, undefined);
  proxy.set({});
  assert.equal(await asked, "held");
});

Deno.test("a black hole lets the sender's buffers fill up", async () => {
  await using server = startEcho();
  await using proxy = startTcpProxy(server.port);
  using connection = await dial(proxy);
  proxy.set({ blackHole: "up" });
  const piece = new Uint8Array(1024 * 1024);
  let sentBytes = 0;
  let isFull = false;
  const writing = (async () => {
    while (true) sentBytes += await connection.write(piece);
  })().catch((error) => assert.ok(error instanceof Error));
  let lastSeen = -1;
  await waitFor(() => {
    isFull = sentBytes > 0 && sentBytes === lastSeen;
    lastSeen = sentBytes;
    return isFull;
  }, { what: "the sender to block", intervalMs: 100 });
  proxy.cut();
  await writing;
});

Deno.test("cut() ends open connections, refuse ends new ones", async () => {
  await using server = startEcho();
  await using proxy = startTcpProxy(server.port);
  using connection = await dial(proxy);
  assert.equal(await echo(connection, "hello"), "hello");
  proxy.cut();
  await waitFor(() => proxy.connections() === 0, { what: "the cut" });
  proxy.set({ refuse: true });
  using refused = await dial(proxy);
  assert.equal(await refused.read(new Uint8Array(1)), null);
});

Deno.test("a target that moves leads new connections elsewhere, old ones stay", async () => {
  await using first = startEcho();
  const second = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  let port = first.port;
  await using proxy = startTcpProxy(() => port);
  using old = await dial(proxy);
  assert.equal(await echo(old, "hello"), "hello");
  port = second.addr.port;
  using moved = await dial(proxy);
  const accepted = await second.accept();
  accepted.close();
  second.close();
  assert.equal(await moved.read(new Uint8Array(1)), null);
  assert.equal(await echo(old, "still here"), "still here");
});
