import assert from "node:assert/strict";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { freePort } from "../../tests/support/local_server.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import { startTcpProxy } from "../../tests/support/tcp_proxy.ts";
import { waitFor } from "../../tests/support/wait_for.ts";
import { silentLog } from "../process/log.ts";
import { BusUnavailableError } from "./link.ts";
import { readServers } from "./link_dial.ts";

const ONCE = { firstConnectMs: 0, dialMs: 100 };

Deno.test("a server may be written with a scheme and a port; its credentials and TLS are for all", () => {
  const cases = [
    ["127.0.0.1:4333", "127.0.0.1:4333"],
    ["nats.example", "nats.example:4222"],
    ["nats://nats.example", "nats.example:4222"],
    ["nats://[::1]:4333", "[::1]:4333"],
    ["tls://us%40er:se%3Acret@nats2.example:443", "nats2.example:443"],
  ] as const;
  const zero = () => 0;
  const options = { name: "test", log: silentLog, now: zero, random: zero };
  const servers = cases.map(([server]) => server);
  assert.deepEqual(readServers({ ...options, servers }), {
    ...options,
    servers: cases.map(([, address]) => address),
    credentials: { user: "us@er", password: "se:cret" },
    tls: {},
  });
});

Deno.test("connectBus() waits for a server that is started after it", async () => {
  const port = freePort();
  const connecting = connectTestLink([`127.0.0.1:${port}`]);
  await using nats = await startNatsServer({ port });
  await using test = await connecting;
  await isReady(test.link);
  assert.equal(test.log.find("bus_connected")?.["server"], nats.server);
});

Deno.test("connectBus() gives up at its deadline, with a reason for each server", async () => {
  await using frozen = await startNatsServer();
  await frozen.freeze();
  const refused = `127.0.0.1:${freePort()}`;
  await assert.rejects(
    connectTestLink([refused, frozen.server], { timing: ONCE }),
    (error) => {
      assert.ok(error instanceof BusUnavailableError);
      assert.equal(
        error.message,
        `Cannot reach the bus at "${refused}": connection refused; ` +
          `Cannot reach the bus at "${frozen.server}": no answer within 100 ms`,
      );
      return true;
    },
  );
});

const IMPOSTORS: [string, string, RegExp][] = [
  ["an HTTP server", "HTTP/1.1 400 Bad Request\r\n\r\n", /unexpected response/],
  ["a greeting without JSON", "INFO hello\r\n", /JSON/],
  ["a server that hangs up", "INF", /closed it without an INFO/],
];

for (const [name, words, reason] of IMPOSTORS) {
  Deno.test(`connectBus() says what is wrong with ${name}`, async () => {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const serving = (async () => {
      const connection = await listener.accept();
      await connection.write(new TextEncoder().encode(words));
      connection.close();
    })();
    await assert.rejects(
      connectTestLink([`127.0.0.1:${listener.addr.port}`], {
        timing: { firstConnectMs: 0 },
      }),
      reason,
    );
    await serving;
  });
}

Deno.test("connectBus() skips a server that hangs, which stays in the pool", async () => {
  await using hanging = await startNatsServer();
  await using nats = await startNatsServer();
  await hanging.freeze();
  await using test = await connectTestLink([hanging.server, nats.server], {
    timing: { dialMs: 100 },
  });
  await isReady(test.link);
  hanging.thaw();
  await nats.kill();
  assert.equal((await test.reconnected()).server, hanging.server);
});

Deno.test("connectBus() closes the connection to a server that sends nothing", async () => {
  await using nats = await startNatsServer();
  await using proxy = startTcpProxy(nats.port);
  proxy.set({ blackHole: "down" });
  await assert.rejects(
    connectTestLink([proxy.server], { timing: ONCE }),
    /no answer within 100 ms/,
  );
  proxy.set({});
  await waitFor(() => proxy.connections() === 0, { what: "the end of it" });
});

Deno.test("a link that is closed while it dials leaves no connection behind", async () => {
  await using nats = await startNatsServer();
  await using proxy = startTcpProxy(nats.port);
  await using test = await connectTestLink([proxy.server], {
    timing: { dialMs: 60_000 },
  });
  proxy.set({ blackHole: "both" });
  proxy.cut();
  await waitFor(() => !test.link.isConnected, { what: "the loss" });
  await waitFor(() => proxy.connections() === 1, { what: "the next dial" });
  await test.link.close();
  proxy.set({});
  await waitFor(() => proxy.connections() === 0, { what: "the end of it" });
});
