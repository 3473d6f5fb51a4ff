import { createRedial, createThrottle } from "./link_dial.ts";
import { BUS_TIMING } from "./link_options.ts";
import assert from "node:assert/strict";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { freePort } from "../../tests/support/local_server.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import { startTcpProxy } from "../../tests/support/tcp_proxy.ts";
import { waitFor } from "../../tests/support/wait_for.ts";
import { BusConfigError, BusUnavailableError } from "./link.ts";

const ONCE = { firstConnectMs: 0, dialMs: 100 };

Deno.test("connectBus() waits for a server that is started after it", async () => {
  const port = freePort();
  const connecting = connectTestLink([`127.0.0.1:${port}`], {
    timing: { reconnectWaitMs: 20 },
  });
  await using nats = await startNatsServer({ port });
  await using test = await connecting;
  await isReady(test.link);
  assert.equal(test.log.find("bus_connected")?.["server"], nats.server);
});

Deno.test("connectBus() gives up at its deadline, with a reason for each server", async () => {
  await using frozen = await startNatsServer();
  await frozen.stop();
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
  ["a server that hangs up", "INF", /hung up without a greeting/],
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

Deno.test("connectBus() passes over a server that hangs, which stays in the pool", async () => {
  await using hanging = await startNatsServer();
  await using nats = await startNatsServer();
  await hanging.stop();
  await using test = await connectTestLink([hanging.server, nats.server], {
    timing: { dialMs: 100 },
  });
  await isReady(test.link);
  hanging.cont();
  await nats.kill();
  const status = await waitFor(() => test.status("reconnected"), {
    what: "the move to the other server",
  });
  assert.equal(status.server, hanging.server);
});

Deno.test("connectBus() hangs up on a server that says nothing", async () => {
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

Deno.test("connectBus() refuses at once what can never work", async () => {
  await assert.rejects(connectTestLink(["http://nats"]), BusConfigError);
});

const TABLE: { atMs: number; random: number; waitMs: number }[] = [
  { atMs: 0, random: 0, waitMs: 50 },
  { atMs: 0, random: 0.5, waitMs: 75 },
  { atMs: 499, random: 0, waitMs: 50 },
  { atMs: 500, random: 0, waitMs: 250 },
  { atMs: 500, random: 0.5, waitMs: 375 },
  { atMs: 60_000, random: 0, waitMs: 250 },
];

for (const { atMs, random, waitMs } of TABLE) {
  Deno.test(`createRedial() waits ${waitMs} ms after ${atMs} ms of an outage, at ${random}`, () => {
    const beganAtMs = 7_000;
    let nowMs = beganAtMs;
    const redial = createRedial({
      timing: BUS_TIMING,
      now: () => nowMs,
      random: () => random,
    });
    redial.waitMs();
    nowMs += atMs;
    assert.equal(redial.waitMs(), waitMs);
  });
}

Deno.test("createRedial() is quick again in the next outage", () => {
  let nowMs = 0;
  const redial = createRedial({
    timing: BUS_TIMING,
    now: () => nowMs,
    random: () => 0,
  });
  redial.waitMs();
  nowMs = BUS_TIMING.reconnectSoonForMs;
  assert.equal(redial.waitMs(), BUS_TIMING.reconnectWaitMs);
  redial.onConnected();
  assert.equal(redial.waitMs(), BUS_TIMING.reconnectSoonMs);
});

const POOLS: { name: string; dialledAt: number[]; next: string }[] = [
  { name: "the only server", dialledAt: [7], next: "0" },
  { name: "the other of two", dialledAt: [7, 3], next: "1" },
  { name: "one that was never dialled", dialledAt: [7, 3, 0], next: "2" },
  { name: "any that was never dialled", dialledAt: [7, 0, 0], next: "12" },
  { name: "none of none", dialledAt: [], next: "" },
];

for (const { name, dialledAt, next } of POOLS) {
  Deno.test(`createRedial() dials ${name}`, () => {
    const servers = dialledAt.map((lastConnect, id) => ({ id, lastConnect }));
    const seen = [0, 0.499, 0.5, 0.999].map((random) => {
      const redial = createRedial({
        timing: BUS_TIMING,
        now: () => 0,
        random: () => random,
      });
      return redial.next(servers)?.id ?? "";
    });
    assert.equal([...new Set(seen)].join(""), next);
  });
}

Deno.test("a throttle lets one line through per interval and counts the others", () => {
  let nowMs = 1_000;
  const mayLog = createThrottle(() => nowMs, 100);
  assert.deepEqual([mayLog(), mayLog(), mayLog()], [0, undefined, undefined]);
  nowMs += 99;
  assert.equal(mayLog(), undefined);
  nowMs += 1;
  assert.equal(mayLog(), 3);
  nowMs += 100;
  assert.equal(mayLog(), 0);
});
