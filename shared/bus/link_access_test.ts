import assert from "node:assert/strict";
import { nkeys } from "nats";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import {
  type CertificateFiles,
  createTestAuthority,
} from "../../tests/support/deployed/test_authority.ts";
import { waitFor } from "../../tests/support/wait_for.ts";
import { BusUnavailableError } from "./link.ts";
import type { BusOptions } from "./link_dial.ts";

const NOTHING = new Uint8Array();
/** One attempt, so that a refusal is the outcome of the test and not of a wait. */
const ONCE = { firstConnectMs: 0, dialMs: 1_000 };

const passwords = (password: string) =>
  `authorization { users: [ { user: edge, password: "${password}" } ] }`;

Deno.test("a user with the right password can connect, others get the reason", async () => {
  await using nats = await startNatsServer({ config: passwords("right") });
  await using test = await connectTestLink([nats.server], {
    credentials: { user: "edge", password: "right" },
  });
  await isReady(test.link);
  await using _inAddress = await connectTestLink([
    `nats://edge:right@${nats.server}`,
  ]);
  const wrong = { credentials: { user: "edge", password: "wrong" } };
  for (const login of [wrong, {}]) {
    await assert.rejects(
      connectTestLink([nats.server], { ...login, timing: ONCE }),
      (error) =>
        error instanceof BusUnavailableError &&
        /Authorization Violation/.test(error.message) &&
        !/wrong/.test(error.message),
    );
  }
});

Deno.test("refused logins end as errors of connectBus(), never of the process", async () => {
  await using nats = await startNatsServer({ config: passwords("right") });
  // About one in twenty has the server reset a socket that the client let go.
  for (let attempt = 0; attempt < 100; attempt++) {
    await assert.rejects(
      connectTestLink([nats.server], { timing: ONCE }),
      BusUnavailableError,
    );
  }
});

Deno.test("an nkey user can connect with its seed, but not with another", async () => {
  const user = nkeys.createUser();
  const seed = (pair: typeof user) => new TextDecoder().decode(pair.getSeed());
  await using nats = await startNatsServer({
    config: `authorization { users: [ { nkey: ${user.getPublicKey()} } ] }`,
  });
  await using test = await connectTestLink([nats.server], {
    credentials: { nkeySeed: seed(user) },
  });
  await isReady(test.link);
  await assert.rejects(
    connectTestLink([nats.server], {
      credentials: { nkeySeed: seed(nkeys.createUser()) },
      timing: ONCE,
    }),
    /Authorization Violation/,
  );
});

Deno.test("a link reads its password for each login, and tries until it is right", async () => {
  await using nats = await startNatsServer({ config: passwords("one") });
  let password = "one";
  await using test = await connectTestLink([nats.server], {
    credentials: { user: "edge", password: () => password },
    timing: { retryMs: 1, retryMaxMs: 1 },
  });
  await nats.reload(passwords("two"));
  await waitFor(() => test.log.find("bus_not_reached"), {
    what: "a refused login",
  });
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

Deno.test("a denied publish is reported and logged, a denied subscription makes the link not ready as well", async () => {
  await using nats = await startNatsServer({ config: EDGE_PERMISSIONS });
  await using test = await connectTestLink([nats.server], EDGE);
  test.link.publish("forbidden.one", NOTHING);
  await waitFor(() => test.events.length > 0, { what: "the refusal" });
  assert.equal(test.events[0], "refused");
  assert.match(
    String(test.log.find("bus_error")?.["error"]),
    /Publish to "forbidden\.one"/,
  );
  await assert.rejects(
    test.link.request("forbidden", NOTHING, { timeoutMs: 60_000 }),
    BusUnavailableError,
  );
  await isReady(test.link);
  const denied = test.link.subscribe("forbidden.>", () => {});
  await waitFor(() => !test.link.isReady, { what: "the refusal" });
  assert.equal(test.events.at(-1), "refused");
  await denied.drain();
  await isReady(test.link);
});

Deno.test("connectBus() fails if a link may not publish to itself", async () => {
  const config = EDGE_PERMISSIONS.replace(`, "_INBOX_edge.*.echo"`, "");
  await using nats = await startNatsServer({ config });
  await assert.rejects(
    connectTestLink([nats.server], {
      ...EDGE,
      timing: { ...ONCE, silentMs: 100 },
    }),
    /a message to "_INBOX_edge\.\w+\.echo" did not come back/,
  );
});

/** A server that demands client certificates of this authority. */
const mutualTls = (server: CertificateFiles, caFile: string) =>
  `tls { cert_file: "${server.certFile}", key_file: "${server.keyFile}",
    ca_file: "${caFile}", verify: true, timeout: 2 }`;

Deno.test("TLS: a self-made authority and client certificates are accepted, anything else is refused with the reason", async (t) => {
  await using authority = await createTestAuthority();
  await using stranger = await createTestAuthority();
  await using misnamed = await createTestAuthority("DNS:nats.example");
  const { caFile, client } = authority;
  await using nats = await startNatsServer({
    config: mutualTls(authority.server, caFile),
  });
  await using elsewhere = await startNatsServer({
    config: mutualTls(misnamed.server, misnamed.caFile),
  });
  await using plain = await startNatsServer();
  const tls = { caFile, ...client };

  for (const host of ["127.0.0.1", "localhost"]) {
    await using test = await connectTestLink([`tls://${host}:${nats.port}`], {
      tls,
    });
    await isReady(test.link);
  }
  const { server } = nats;
  const toAnother = { caFile: misnamed.caFile, ...misnamed.client };
  const unnamed = /NotValidForName|altname/;
  type Tls = NonNullable<BusOptions["tls"]>;
  const refusals: [name: string, server: string, tls: Tls, why: RegExp][] = [
    ["no client certificate", server, { caFile }, /closed|certificate/],
    [
      "a client certificate of a stranger",
      server,
      { caFile, ...stranger.client },
      /may require a client certificate that it trusts/,
    ],
    [
      "a server of an unknown authority",
      server,
      { ...tls, caFile: stranger.caFile },
      /UnknownIssuer|certificate/,
    ],
    ["a missing file", server, { caFile: `${caFile}.no` }, /doesn't exist/],
    ["a server without TLS", plain.server, {}, /does not support 'tls'/],
    ["another address", `127.0.0.1:${elsewhere.port}`, toAnother, unnamed],
    ["another name", `localhost:${elsewhere.port}`, toAnother, unnamed],
  ];
  for (const [name, server, tls, reason] of refusals) {
    await t.step(`${name}: refused`, async () => {
      await assert.rejects(
        connectTestLink([server], { tls, timing: ONCE }),
        reason,
      );
    });
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
  await waitFor(
    () =>
      test.log.lines.some(({ event, fields }) =>
        event === "bus_not_reached" &&
        /certificate/.test(String(fields["error"]))
      ),
    { what: "a refusal in the log" },
  );
  assert.equal(test.link.isConnected, false);
  await nats.reload(config);
  await test.reconnected();
  await isReady(test.link);
});
