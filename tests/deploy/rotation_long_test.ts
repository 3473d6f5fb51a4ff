/**
 * Promise: rotating passwords by the steps of docs/security.md fails no request and
 * cuts off no stream, and the old passwords are void afterwards.
 */
import assert from "node:assert/strict";
import { connectTestLink } from "../support/bus_link.ts";
import {
  deployedEnv,
  deployedNatsConfig,
  type DeployedStores,
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
const STEP_MS = 30_000;
/** A request that gets 503 is retried, as SDKs do. */
const ATTEMPTS_MAX = 5;
const RETRY_MS = 500;
/** A response takes about half a second, so that some are running at each step. */
const PACE: ServiceEnv = {
  SIMULATOR_FIRST_TOKEN_MS: "50",
  SIMULATOR_TOKENS_PER_SECOND: "60",
};

/** Clients that repeat a request which gets 503, as SDKs do. */
class Load {
  complete = 0;
  readonly failures: string[] = [];
  readonly #repeated: string[] = [];
  readonly #running: Promise<unknown>;
  #isOver = false;

  /** `url`: where a proxy would send new requests. */
  constructor(public url: string, key: string) {
    this.#running = Promise.all(
      Array.from({ length: LANES }, async () => {
        while (!this.#isOver) {
          await this.#ask(key).catch((error) =>
            this.failures.push(String(error))
          );
        }
      }),
    );
  }

  async #ask(key: string): Promise<void> {
    for (let attempt = 1;; attempt++) {
      const answer = await sendChat(this.url, key, "[simulator: 20 tokens]");
      const text = await answer.text();
      if (answer.status === 200) {
        this.complete += 1;
        return;
      }
      if (answer.status !== 503 || attempt === ATTEMPTS_MAX) {
        this.failures.push(`${answer.status} ${text}`);
        return;
      }
      this.#repeated.push(text);
      await sleep(RETRY_MS);
    }
  }

  /** Failures, and retries for another reason than a slow Redis. */
  busTrouble(): string[] {
    const slow = /service_unavailable/;
    return this.failures.concat(this.#repeated.filter((x) => !slow.test(x)));
  }

  stop(): Promise<unknown> {
    this.#isOver = true;
    return this.#running;
  }
}

async function moreAnswers(load: Load): Promise<void> {
  const wanted = load.complete + PROOF_ANSWERS;
  await waitFor(() => load.complete >= wanted, {
    what: () => `answers; so far ${load.failures.join("\n")}`,
    timeoutMs: STEP_MS,
  });
}

const envOf = (
  stores: DeployedStores,
  service: Parameters<typeof deployedEnv>[1],
) => ({ ...PACE, ...deployedEnv(stores, service) });

/** Signs in as the operator, with the current password. */
async function asOperator(
  { secrets, redis }: DeployedStores,
  ...command: string[]
): Promise<void> {
  const link = testRedisLink({
    url: redis.url,
    username: "operator",
    password: await secrets.read("redis_operator_password"),
  });
  await link.ready(STEP_MS);
  await link.command(command);
  await link.close();
}

const reconnections = ({ process }: RunningServiceProcess): number =>
  process.output().split('"event":"bus_reconnected"').length - 1;

Deno.test("passwords are rotated under load without a failed request", async (t) => {
  await using secrets = await makeSecrets();
  await using nats = await startDeployedNats(secrets);
  await using redis = await startDeployedRedis(secrets);
  const stores = { secrets, nats, redis };
  await using edge = await startService("edge-auth", envOf(stores, "edge"));
  await using worker = await startService(
    "chat-worker",
    envOf(stores, "worker"),
  );
  await using media = await startService(
    "media-worker",
    envOf(stores, "media"),
  );
  const { key } = await makeKey(envOf(stores, "admin"));
  const load = new Load(edge.url, key);
  await moreAnswers(load);

  for (
    const [name, service] of [
      ["nats-edge", edge],
      ["nats-worker", worker],
      ["nats-media", media],
    ] as const
  ) {
    await t.step(`${name}: the service takes the new one`, async () => {
      const before = reconnections(service);
      await secrets.run("rotate", name);
      await nats.reload(await deployedNatsConfig(secrets));
      await waitFor(() => reconnections(service) > before, {
        what: () => `${name} to be used: ${service.process.output()}`,
        timeoutMs: STEP_MS,
      });
      await moreAnswers(load);
      assert.deepEqual(load.busTrouble(), []);
    });
  }

  await t.step("nats-admin: and the old one is refused", async () => {
    const old = await secrets.read("nats_admin_password");
    await secrets.run("rotate", "nats-admin");
    await nats.reload(await deployedNatsConfig(secrets));
    const { id } = await makeKey(envOf(stores, "admin"));
    await runKeys(envOf(stores, "admin"), "disable", id, "--stop-running");
    await assert.rejects(
      connectTestLink([nats.server], {
        credentials: { user: "key-admin", password: old },
        timing: { firstConnectMs: 0 },
      }),
      /Authorization Violation/,
    );
    assert.deepEqual(load.busTrouble(), []);
  });

  // Redis before 7.2 closes connections when it reloads its users, so a request may
  // have to be retried here.
  await t.step("redis-edge: both are valid, then the new one", async () => {
    await secrets.run("rotate", "redis-edge");
    await asOperator(stores, "ACL", "LOAD");
    await moreAnswers(load);
    assert.deepEqual(load.failures, []);
    await using fresh = await startService("edge-auth", envOf(stores, "edge"));
    load.url = fresh.url;
    edge.process.signal("SIGTERM");
    await edge.process.exited;
    await secrets.run("retire");
    await asOperator(stores, "ACL", "LOAD");
    await moreAnswers(load);
    await load.stop();
    assert.deepEqual(load.failures, []);
  });
});
