// Promise: the services work as the users of deploy/, with and without TLS: a key is
// created, a chat is answered through edge and worker, a key is stopped. With TLS a
// service trusts only the given authority, and NATS and Redis refuse clients whose
// certificate that authority has not signed.
import assert from "node:assert/strict";
import {
  type DeployedSecrets,
  makeSecrets,
  startDeployedNats,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import {
  runKeys,
  sendChat,
  type ServiceEnv,
  startService,
} from "../support/service_processes.ts";
import {
  createTestAuthority,
  type TestAuthority,
} from "../support/deployed/test_authority.ts";
import { waitFor } from "../support/wait_for.ts";

const START_MS = 30_000;

function storeEnv(
  stores: { nats: string; redis: string },
  secrets: DeployedSecrets,
  authority: TestAuthority | undefined,
) {
  const tls = (prefix: string): ServiceEnv =>
    authority === undefined ? {} : {
      [`${prefix}_CA_FILE`]: authority.caFile,
      [`${prefix}_CERT_FILE`]: authority.client.certFile,
      [`${prefix}_KEY_FILE`]: authority.client.keyFile,
    };
  const nats = (user: string, secret: string): ServiceEnv => ({
    NATS_URL: `nats://${stores.nats}`,
    NATS_USER: user,
    NATS_PASSWORD_FILE: secrets.path(secret),
    ...tls("NATS"),
  });
  const redis = (user: string, secret: string): ServiceEnv => ({
    REDIS_URL: stores.redis,
    REDIS_USERNAME: user,
    REDIS_PASSWORD_FILE: secrets.path(secret),
    ...tls("REDIS"),
  });
  return {
    edge: {
      ...nats("edge-auth", "nats_edge_password"),
      ...redis("edge-auth", "redis_edge_password"),
    },
    worker: nats("chat-worker", "nats_worker_password"),
    admin: {
      ...nats("key-admin", "nats_admin_password"),
      ...redis("key-admin", "redis_admin_password"),
    },
  };
}

const MODES: [name: string, isTls: boolean][] = [
  ["passwords", false],
  ["passwords and mutual TLS", true],
];
/** Larger than one message of the bus, so that it is sent in pieces. */
const LARGE = "word ".repeat(112_000);

for (const [name, isTls] of MODES) {
  Deno.test(`the services work as deployed: ${name}`, async (t) => {
    await using authority = isTls ? await createTestAuthority() : undefined;
    await using secrets = await makeSecrets();
    await using nats = await startDeployedNats(secrets, authority);
    await using redis = await startDeployedRedis(secrets, authority);
    const env = storeEnv(
      { nats: nats.server, redis: redis.url },
      secrets,
      authority,
    );
    const [edge, worker, admin] = await Promise.all([
      startService("edge-auth", env.edge),
      startService("chat-worker", env.worker),
      startService("key-admin", env.admin),
    ]);
    await using _edge = edge;
    await using _worker = worker;
    await using _admin = admin;
    const made = JSON.parse(
      await runKeys(env.admin, "create", "--description", "test"),
    );

    await t.step("a chat is answered", async () => {
      const answer = await sendChat(edge.url, made.key, "hello");
      assert.equal(answer.status, 200, edge.process.output());
      assert.equal((await answer.json()).object, "chat.completion");
    });
    await t.step("a large chat is answered", async () => {
      const answer = await sendChat(edge.url, made.key, LARGE);
      assert.equal(answer.status, 200, await answer.text());
    });
    await t.step(
      "Redis keeps the key when it is killed and restarted",
      async () => {
        // Redis loads its file as the user `default` and skips commands that this user
        // may not run. The user therefore may run all, and no client may sign in as it.
        await redis.server.restart();
        assert.doesNotMatch(redis.server.output(), /CRITICAL|NOPERM/);
        const answer = await waitFor(async () => {
          const one = await sendChat(edge.url, made.key, "hello");
          await one.body?.cancel();
          return one.status === 503 ? undefined : one;
        }, { what: "the edge to find Redis again", timeoutMs: START_MS });
        assert.equal(answer.status, 200);
      },
    );
    await t.step("a stopped key is refused", async () => {
      await runKeys(env.admin, "disable", made.id, "--stop-running");
      const answer = await sendChat(edge.url, made.key, "hello");
      assert.equal(answer.status, 403);
      await answer.body?.cancel();
    });
    if (isTls) {
      await using another = await createTestAuthority();
      const foreign: [name: string, env: ServiceEnv][] = [
        ["server", { REDIS_CA_FILE: another.caFile }],
        ["client", {
          REDIS_CERT_FILE: another.client.certFile,
          REDIS_KEY_FILE: another.client.keyFile,
        }],
      ];
      for (const [side, wrong] of foreign) {
        await t.step(
          `ASVS 12.3.1, 12.3.2, 12.3.4: a ${side} of another authority is not believed`,
          async () => {
            await assert.rejects(
              runKeys({ ...env.admin, ...wrong }, "list"),
              /certificate|Cannot reach redis/i,
            );
          },
        );
      }
    }
    await t.step("NATS and Redis refused no service", () => {
      const said = [edge, worker, admin].map(({ process }) => process.output());
      assert.doesNotMatch(said.join(""), /NOPERM|Permissions Violation/i);
    });
  });
}
