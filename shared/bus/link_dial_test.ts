/** How a link finds a server: addresses, deadlines, credentials. */
import assert from "node:assert/strict";
import {
  connectTestLink,
  isReady,
} from "../../tests/support/servers/bus_link.ts";
import {
  type CertificateFiles,
  createTestAuthority,
} from "../../tests/support/deployed/test_authority.ts";
import { freePort } from "../../tests/support/servers/local_server.ts";
import { startNatsServer } from "../../tests/support/servers/nats_server.ts";
import { startTcpProxy } from "../../tests/support/servers/tcp_proxy.ts";
import { until } from "../../tests/support/wait_for.ts";
import { silentLog } from "../process/log.ts";
import { BusUnavailableError } from "./link.ts";
import { type BusOptions, readServers } from "./link_dial.ts";

const NOTHING = new Uint8Array();
/** One attempt, so that a refusal is the outcome of the test and not of a wait. */
const ONCE = { firstConnectMs: 0, dialMs: 1_000 };

type Options = Parameters<typeof connectTestLink>[1];
const assertRefused = (server: string, why: RegExp, options: Options = {}) =>
  assert.rejects(connectTestLink([server], { timing: ONCE, ...options }), why);

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
  const timing = { ...ONCE, dialMs: 100 };
  await assert.rejects(connectTestLink([refused, frozen.server], { timing }), {
    name: "BusUnavailableError",
    message: `Cannot reach the bus at "${refused}": connection refused; ` +
      `Cannot reach the bus at "${frozen.server}": no answer within 100 ms`,
  });
});

Deno.test("connectBus() says what is wrong with a server that is not NATS", async () => {
  const impostors: [greeting: string, why: RegExp][] = [
    ["HTTP/1.1 400 Bad Request\r\n\r\n", /unexpected response/],
    ["INFO hello\r\n", /JSON/],
    ["INF", /closed it without an INFO/],
  ];
  for (const [greeting, why] of impostors) {
    using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const serving = (async () => {
      const connection = await listener.accept();
      await connection.write(new TextEncoder().encode(greeting));
      connection.close();
    })();
    await assertRefused(`127.0.0.1:${listener.addr.port}`, why);
    await serving;
  }
});

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

Deno.test("a link that gives up or is closed while it dials leaves no connection behind", async () => {
  await using nats = await startNatsServer();
  await using proxy = startTcpProxy(nats.port);
  proxy.set({ blackHole: "down" });
  const timing = { ...ONCE, dialMs: 100 };
  await assertRefused(proxy.server, /no answer within 100 ms/, { timing });
  proxy.set({});
  await until(() => proxy.connections() === 0);
  await using test = await connectTestLink([proxy.server], {
    timing: { dialMs: 60_000 },
  });
  proxy.set({ blackHole: "both" });
  proxy.cut();
  await until(() => !test.link.isConnected);
  await until(() => proxy.connections() === 1);
  await test.link.close();
  proxy.set({});
  await until(() => proxy.connections() === 0);
});

const passwords = (password: string) =>
  `authorization { users: [ { user: edge, password: "${password}" } ] }`;

Deno.test("the right password connects, any other login is refused with the reason and does no harm", async () => {
  await using nats = await startNatsServer({ config: passwords("right") });
  await using test = await connectTestLink([nats.server], {
    credentials: { user: "edge", password: "right" },
  });
  await isReady(test.link);
  await using _inAddress = await connectTestLink([
    `nats://edge:right@${nats.server}`,
  ]);
  const wrong = { credentials: { user: "edge", password: "wrong" } };
  // About one in twenty has the server reset a socket that the client let go.
  for (let attempt = 0; attempt < 100; attempt++) {
    const login = attempt % 2 === 0 ? wrong : {};
    await assert.rejects(
      connectTestLink([nats.server], { ...login, timing: ONCE }),
      (error) =>
        error instanceof BusUnavailableError &&
        /Authorization Violation/.test(error.message) &&
        !/wrong/.test(error.message),
    );
  }
});

Deno.test("a link reads its password for each login, and tries until it is right", async () => {
  await using nats = await startNatsServer({ config: passwords("one") });
  let password = "one";
  await using test = await connectTestLink([nats.server], {
    credentials: { user: "edge", password: () => password },
    timing: { retryMs: 1, retryMaxMs: 1 },
  });
  await nats.reload(passwords("two"));
  await until(() => test.log.find("bus_not_reached"));
  assert.equal(test.link.isConnected, false);
  password = "two";
  await test.reconnected();
  await isReady(test.link);
});

const EDGE_PERMISSIONS = `authorization { users: [ { user: edge, password: p,
  permissions: {
    publish: { allow: ["allowed.>", "_INBOX_edge.*.echo"] },
    subscribe: { allow: ["allowed.>", "_INBOX_edge.>"] } } } ] }`;
const EDGE = {
  credentials: { user: "edge", password: "p" },
  inboxPrefix: "_INBOX_edge",
};

Deno.test("a denied publish is reported and logged; a denied subscription also makes the link not ready", async () => {
  await using nats = await startNatsServer({ config: EDGE_PERMISSIONS });
  await using test = await connectTestLink([nats.server], EDGE);
  test.link.publish("forbidden.one", NOTHING);
  await until(() => test.events.length > 0);
  assert.equal(test.events[0], "refused");
  const line = test.log.find("bus_error");
  assert.match(String(line?.["error"]), /Publish to "forbidden\.one"/);
  await assert.rejects(
    test.link.request("forbidden", NOTHING, { timeoutMs: 60_000 }),
    BusUnavailableError,
  );
  await isReady(test.link);
  const denied = test.link.subscribe("forbidden.>", () => {});
  await until(() => !test.link.isReady);
  assert.equal(test.events.at(-1), "refused");
  await denied.drain();
  await isReady(test.link);
});

Deno.test("connectBus() fails if a link may not publish to itself", async () => {
  const config = EDGE_PERMISSIONS.replace(`, "_INBOX_edge.*.echo"`, "");
  await using nats = await startNatsServer({ config });
  const why = /a message to "_INBOX_edge\.\w+\.echo" did not come back/;
  const timing = { ...ONCE, silentMs: 100 };
  await assertRefused(nats.server, why, { ...EDGE, timing });
});

/** A server that demands client certificates of this authority. */
const mutualTls = (server: CertificateFiles, caFile: string) =>
  `tls { cert_file: "${server.certFile}", key_file: "${server.keyFile}",
    ca_file: "${caFile}", verify: true, timeout: 2 }`;

/** A connection that must not be made, and how the reason for it begins. */
interface Refused {
  server: string;
  tls: NonNullable<BusOptions["tls"]>;
  reason: RegExp;
}

Deno.test("TLS: certificates of our own authority are accepted", async () => {
  await using authority = await createTestAuthority();
  const { caFile, server, client } = authority;
  await using nats = await startNatsServer({
    config: mutualTls(server, caFile),
  });
  for (const host of ["127.0.0.1", "localhost"]) {
    const servers = [`tls://${host}:${nats.port}`];
    const tls = { caFile, ...client };
    await using test = await connectTestLink(servers, { tls });
    await isReady(test.link);
  }
});

Deno.test("TLS: anything else is refused with the reason", async (t) => {
  await using authority = await createTestAuthority();
  await using stranger = await createTestAuthority();
  const { caFile, client } = authority;
  await using nats = await startNatsServer({
    config: mutualTls(authority.server, caFile),
  });
  await using plain = await startNatsServer();
  const { server } = nats;
  const refused: { [name: string]: Refused } = {
    "no client certificate": {
      server,
      tls: { caFile },
      reason: /closed|certificate/,
    },
    "a stranger's certificate": {
      server,
      tls: { caFile, ...stranger.client },
      reason: /certificate that it trusts/,
    },
    "an unknown authority": {
      server,
      tls: { ...client, caFile: stranger.caFile },
      reason: /UnknownIssuer|certificate/,
    },
    "a missing file": {
      server,
      tls: { caFile: `${caFile}.no` },
      reason: /doesn't exist/,
    },
    "a server without TLS": {
      server: plain.server,
      tls: {},
      reason: /does not support 'tls'/,
    },
  };
  for (const [name, { server, tls, reason }] of Object.entries(refused)) {
    await t.step(name, () => assertRefused(server, reason, { tls }));
  }
});

Deno.test("TLS: a server whose certificate has another name is refused", async () => {
  await using misnamed = await createTestAuthority("DNS:nats.example");
  const { caFile, client } = misnamed;
  await using nats = await startNatsServer({
    config: mutualTls(misnamed.server, caFile),
  });
  for (const host of ["127.0.0.1", "localhost"]) {
    const server = `${host}:${nats.port}`;
    const tls = { caFile, ...client };
    await assertRefused(server, /NotValidForName|altname/, { tls });
  }
});

Deno.test("TLS: a certificate refused while reconnecting is logged, and does no harm", async () => {
  await using authority = await createTestAuthority();
  await using stranger = await createTestAuthority();
  const { caFile, server, client } = authority;
  const config = mutualTls(server, caFile);
  await using nats = await startNatsServer({ config });
  await using test = await connectTestLink([nats.server], {
    tls: { caFile, ...client },
    timing: { dialMs: 200 },
  });
  await nats.reload(mutualTls(server, stranger.caFile));
  await nats.restart();
  // The bare client ends the process here.
  const isRefusal = ({ event, fields }: typeof test.log.lines[number]) =>
    event === "bus_not_reached" && /certificate/.test(String(fields["error"]));
  await until(() => test.log.lines.some(isRefusal));
  assert.equal(test.link.isConnected, false);
  await nats.reload(config);
  await test.reconnected();
  await isReady(test.link);
});
