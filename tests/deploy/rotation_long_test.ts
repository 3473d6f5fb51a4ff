// Promise: rotating passwords by the steps of docs/security.md fails no request and
// cuts off no stream, and the old passwords are void afterwards.
import assert from "node:assert/strict";
import { connectTestLink } from "../support/bus_link.ts";
import {
  deployedEnv,
  deployedNatsConfig,
  makeSecrets,
  startDeployedNats,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import {
  makeKey,
  runKeys,
  type RunningServiceProcess,
  sendChat,
  type ServiceEnv,
  startService,
} from "../support/service_processes.ts";
import { sleep, waitFor } from "../support/wait_for.ts";
import { testRedisLink } from "../support/redis_link.ts";

const LANES = 6;
/** Requests that must succeed after a step before the next one begins. */
const PROOF_ANSWERS = 30;
/** A request that gets 503 is retried, as SDKs do. */
const ATTEMPTS_MAX = 5;
const RETRY_MS = 500;
/** A response takes about half a second, so that some are running at each step. */
const PACE: ServiceEnv = {
  SIMULATOR_FIRST_TOKEN_MS: "50",
  SIMULATOR_TOKENS_PER_SECOND: "60",
};

/** Clients that repeat a request which gets 503, as SDKs do, at the edge where a proxy would send it. */
function startLoad(url: string, key: string) {
  const load = { url, complete: 0, failures: [] as string[] };
  const repeated: string[] = [];
  let isOver = false;
  const ask = async () => {
    for (let attempt = 1;; attempt++) {
      const answer = await sendChat(load.url, key, "[simulator: 20 tokens]");
      const text = await answer.text();
      if (answer.status === 200) return void (load.complete += 1);
      if (answer.status !== 503 || attempt === ATTEMPTS_MAX) {
        throw new Error(`${answer.status} ${text}`);
      }
      repeated.push(text);
      await sleep(RETRY_MS);
    }
  };
  const running = Promise.all(Array.from({ length: LANES }, async () => {
    while (!isOver) {
      await ask().catch((error) => load.failures.push(String(error)));
    }
  }));
  return Object.assign(load, {
    /** Waits until it goes on. */
    async goesOn() {
      const wanted = load.complete + PROOF_ANSWERS;
      await waitFor(() => load.complete >= wanted, {
        what: () => `answers; so far ${load.failures.join("\n")}`,
      });
    },
    /** Failures, and retries for another reason than a slow Redis. */
    busTrouble() {
      const slow = /service_unavailable/;
      return load.failures.concat(repeated.filter((x) => !slow.test(x)));
    },
    stop() {
      isOver = true;
      return running;
    },
  });
}

const reconnections = ({ process }: RunningServiceProcess): number =>
  process.output().split('"event":"bus_reconnected"').length - 1;

Deno.test("passwords are rotated under load without a failed request", async (t) => {
  await using secrets = await makeSecrets();
  await using nats = await startDeployedNats(secrets);
  await using redis = await startDeployedRedis(secrets);
  const stores = { secrets, nats, redis };
  const envOf = (service: "edge" | "worker" | "media" | "admin") => ({
    ...{ ...PACE, ...deployedEnv(stores, service) },
  });
  await using edge = await startService("edge-auth", envOf("edge"));
  await using worker = await startService("chat-worker", envOf("worker"));
  await using media = await startService("media-worker", envOf("media"));
  /** As the operator, with the current password. */
  const loadUsers = async () => {
    const password = await secrets.read("redis_operator_password");
    const address = { url: redis.url, username: "operator", password };
    const link = testRedisLink(address);
    await link.ready(30_000);
    await link.command(["ACL", "LOAD"]);
    await link.close();
  };
  const { key } = await makeKey(envOf("admin"));
  const load = startLoad(edge.url, key);
  await load.goesOn();

  for (const [name, service] of Object.entries({ edge, worker, media })) {
    await t.step(`nats-${name}: the service takes the new one`, async () => {
      const before = reconnections(service);
      await secrets.run("rotate", `nats-${name}`);
      await nats.reload(await deployedNatsConfig(secrets));
      await waitFor(() => reconnections(service) > before, {
        what: () => `${name} to use it: ${service.process.output()}`,
      });
      await load.goesOn();
      assert.deepEqual(load.busTrouble(), []);
    });
  }

  await t.step("nats-admin: and the old one is refused", async () => {
    const old = await secrets.read("nats_admin_password");
    await secrets.run("rotate", "nats-admin");
    await nats.reload(await deployedNatsConfig(secrets));
    const { id } = await makeKey(envOf("admin"));
    await runKeys(envOf("admin"), "disable", id, "--stop-running");
    const stranger = connectTestLink([nats.server], {
      credentials: { user: "key-admin", password: old },
      timing: { firstConnectMs: 0 },
    });
    await assert.rejects(stranger, /Authorization Violation/);
    assert.deepEqual(load.busTrouble(), []);
  });

  // Redis before 7.2 closes connections when it reloads its users, so a request may
  // have to be retried here.
  await t.step("redis-edge: both are valid, then the new one", async () => {
    await secrets.run("rotate", "redis-edge");
    await loadUsers();
    await load.goesOn();
    assert.deepEqual(load.failures, []);
    await using fresh = await startService("edge-auth", envOf("edge"));
    load.url = fresh.url;
    edge.process.signal("SIGTERM");
    await edge.process.exited;
    await secrets.run("retire");
    await loadUsers();
    await load.goesOn();
    await load.stop();
    assert.deepEqual(load.failures, []);
  });
});
