import assert from "node:assert/strict";
import { nkeys } from "nats";
import { connectTestLink, isReady } from "../../tests/support/bus_link.ts";
import { startNatsServer } from "../../tests/support/nats_server.ts";
import {
  type CertificateFiles,
  createTestAuthority,
} from "../../tests/support/deployed/test_authority.ts";
import { waitFor } from "../../tests/support/wait_for.ts";
import { BusRefusedError, BusUnavailableError } from "./link.ts";

const NOTHING = new Uint8Array();
/** One attempt, so that a refusal is the outcome of the test and not of a wait. */
const ONCE = { firstConnectMs: 0, dialMs: 1_000 };

const passwords = (password: string) =>
  `authorization { users: [ { user: edge, password: "${password}" } ] }`;

Deno.test("a user with the right password is let in, others learn why not", async () => {
  await using nats = await startNatsServer({ config: passwords("right") });
  await using test = await connectTestLink([nats.server], {
    credentials: { user: "edge", password: "right" },
  });
  await isReady(test.link);
  await using _inAddress = await connectTestLink([
    `nats://edge:right@${nats.server}`,
  ]);
  for (
    const credentials of [{ user: "edge", password: "wrong" }, undefined]
  ) {
    await assert.rejects(
      connectTestLink([nats.server], {
        ...(credentials === undefined ? {} : { credentials }),
        timing: ONCE,
      }),
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

Deno.test("an nkey user is let in with the seed, another seed is not", async () => {
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

Deno.test("a link whose login is refused keeps trying until it is allowed again", async () => {
  await using nats = await startNatsServer({ config: passwords("one") });
  await using test = await connectTestLink([nats.server], {
    credentials: { user: "edge", password: "one" },
    timing: { reconnectSoonMs: 1, reconnectWaitMs: 1 },
  });
  await nats.reload(passwords("two"));
  // The bare client ends for good after the second refusal.
  await waitFor(
    () => test.statuses.filter((status) => status.type === "error").length > 10,
    { what: "many refusals" },
  );
  assert.equal(test.link.isConnected, false);
  await nats.reload(passwords("one"));
  await waitFor(() => test.status("reconnected"), { what: "the return" });
  await isReady(test.link);
  assert.deepEqual(
    test.statuses.map((one) => one.type).filter((type) => type !== "error"),
    ["disconnected", "reconnected"],
  );
});

const EDGE_PERMISSIONS = `authorization { users: [ { user: edge, password: p,
  permissions: {
    publish: { allow: ["allowed.>", "_INBOX_edge.*.echo"] },
    subscribe: { allow: ["allowed.>", "_INBOX_edge.>"] } } } ] }`;
const EDGE = {
  credentials: { user: "edge", password: "p" },
  inboxPrefix: "_INBOX_edge",
};

Deno.test("a denied publish is told and logged, and the connection lives", async () => {
  await using nats = await startNatsServer({ config: EDGE_PERMISSIONS });
  await using test = await connectTestLink([nats.server], EDGE);
  test.link.publish("forbidden.one", NOTHING);
  await waitFor(() => test.status("refused"), { what: "the refusal" });
  assert.deepEqual(test.status("refused"), {
    type: "refused",
    operation: "publish",
    subject: "forbidden.one",
  });
  assert.match(
    String(test.log.find("bus_complaint")?.["error"]),
    /forbidden\.one/,
  );
  await isReady(test.link);
});

Deno.test("denied requests end at once, all of them", async () => {
  await using nats = await startNatsServer({ config: EDGE_PERMISSIONS });
  await using test = await connectTestLink([nats.server], EDGE);
  const outcomes = await Promise.allSettled(
    Array.from(
      { length: 3 },
      () => test.link.request("forbidden", NOTHING, { timeoutMs: 60_000 }),
    ),
  );
  for (const outcome of outcomes) {
    assert.equal(outcome.status, "rejected");
    assert.ok(outcome.reason instanceof BusRefusedError);
    assert.equal(outcome.reason.subject, "forbidden");
  }
});

Deno.test("a denied subscription is told, and the link is not ready with it", async () => {
  await using nats = await startNatsServer({ config: EDGE_PERMISSIONS });
  await using test = await connectTestLink([nats.server], EDGE);
  await isReady(test.link);
  const denied = test.link.subscribe("forbidden.>", () => {});
  await waitFor(() => test.status("refused"), { what: "the refusal" });
  assert.deepEqual(test.status("refused"), {
    type: "refused",
    operation: "subscribe",
    subject: "forbidden.>",
  });
  assert.equal(test.link.isReady, false);
  denied.unsubscribe();
  await isReady(test.link);
});

Deno.test("without the permission to reach itself a link is not ready", async () => {
  const config = EDGE_PERMISSIONS.replace(`, "_INBOX_edge.*.echo"`, "");
  await using nats = await startNatsServer({ config });
  await using test = await connectTestLink([nats.server], {
    ...EDGE,
  });
  assert.equal(test.link.isReady, false);
});

/** A server that demands client certificates of this authority. */
const mutualTls = (server: CertificateFiles, caFile: string) =>
  `tls { cert_file: "${server.certFile}", key_file: "${server.keyFile}",
    ca_file: "${caFile}", verify: true, timeout: 2 }`;

Deno.test("TLS: a self-made authority, client certificates, and clear errors without", async (t) => {
  await using authority = await createTestAuthority();
  const { caFile, server, client } = authority;
  await using nats = await startNatsServer({
    config: mutualTls(server, caFile),
  });
  await using stranger = await createTestAuthority();

  for (const host of ["127.0.0.1", "localhost"]) {
    await t.step(
      `a client with a certificate is let in at ${host}`,
      async () => {
        await using test = await connectTestLink(
          [`tls://${host}:${nats.port}`],
          {
            tls: { caFile, ...client },
          },
        );
        await isReady(test.link);
      },
    );
  }

  const refusals = [
    ["no client certificate", { caFile }, /demands a client certificate/],
    [
      "a client certificate of a stranger",
      { caFile, ...stranger.client },
      /may not accept the client certificate/,
    ],
    [
      "a server of an unknown authority",
      { caFile: stranger.caFile, ...client },
      /UnknownIssuer|certificate/,
    ],
    [
      "a file that is missing",
      { caFile: `${caFile}.missing`, ...client },
      /doesn't exist/,
    ],
  ] as const;
  for (const [name, tls, reason] of refusals) {
    await t.step(`${name}: refused with the reason`, async () => {
      await assert.rejects(
        connectTestLink([nats.server], { tls, timing: ONCE }),
        reason,
      );
    });
  }

  await t.step(
    "TLS here and none on the server: refused with the reason",
    async () => {
      await using plain = await startNatsServer();
      await assert.rejects(
        connectTestLink([`tls://${plain.server}`], { timing: ONCE }),
        /server does not support 'tls'/,
      );
    },
  );
});

Deno.test("TLS: a server with a certificate for another host is refused", async (t) => {
  await using authority = await createTestAuthority("DNS:nats.example");
  const { caFile, server, client } = authority;
  await using nats = await startNatsServer({
    config: mutualTls(server, caFile),
  });
  for (const host of ["127.0.0.1", "localhost"]) {
    await t.step(`reached as ${host}`, async () => {
      await assert.rejects(
        connectTestLink([`${host}:${nats.port}`], {
          tls: { caFile, ...client },
          timing: ONCE,
        }),
        /NotValidForName|altname/,
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
        event === "bus_socket_error" &&
        /alert|EPIPE/.test(String(fields["error"]))
      ),
    { what: "a refusal in the log" },
  );
  assert.equal(test.link.isConnected, false);
  await nats.reload(config);
  await waitFor(() => test.status("reconnected"), { what: "the return" });
  await isReady(test.link);
});
