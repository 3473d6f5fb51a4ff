// Promise: rotating passwords by the steps of docs/security.md fails no request and
// cuts off no stream, and the old passwords are void afterwards.
import assert from "node:assert/strict";
import { connectTestLink } from "../support/servers/bus_link.ts";
import {
  deployedEnv,
  deployedNatsConfig,
  type DeployedSecrets,
  loadUsers,
  makeSecrets,
  startDeployedNats,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import type { NatsServer } from "../support/servers/nats_server.ts";
import { sendChat } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { makeKey, runKeys } from "../support/gateway/key_commands.ts";
import type {
  RunningService,
  ServiceEnv,
} from "../support/gateway/services.ts";
import { sleep, waitFor } from "../support/wait_for.ts";

const LANES = 6;
/** Requests that must succeed after a step before the next one begins. */
const PROOF_ANSWERS = 30;
/** A request that gets 503 is retried, as SDKs do. */
const ATTEMPTS_MAX = 5;
const RETRY_MS = 500;
/** A response takes about half a second, so that some are running at each step. */
const PACE = {
  SIMULATOR_FIRST_TOKEN_MS: "50",
  SIMULATOR_TOKENS_PER_SECOND: "60",
};

/**
 * Clients that repeat a request which gets 503, as SDKs do, at the edge where a proxy
 * would send it.
 */
class Load {
  /** Where requests go from now on. */
  url: string;
  readonly failures: string[] = [];
  readonly #repeated: string[] = [];
  readonly #key: string;
  readonly #lanes: Promise<void>[];
  #complete = 0;
  #isOver = false;

  constructor(url: string, key: string) {
    this.url = url;
    this.#key = key;
    this.#lanes = Array.from({ length: LANES }, () => this.#runLane());
  }

  /** Waits until it goes on. */
  async goesOn(): Promise<void> {
    const target = this.#complete + PROOF_ANSWERS;
    const what = () => `answers; so far ${this.failures.join("\n")}`;
    await waitFor(() => this.#complete >= target, { what });
  }

  /** Failures, and retries for another reason than a slow Redis. */
  busTrouble(): string[] {
    const slowRedis = /service_unavailable/;
    const repeated = this.#repeated.filter((text) => !slowRedis.test(text));
    return [...this.failures, ...repeated];
  }

  /** Waits for the requests that run, and sends no more. */
  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#lanes);
  }

  async #runLane(): Promise<void> {
    while (!this.#isOver) {
      await this.#ask().catch((error) => this.failures.push(String(error)));
    }
  }

  async #ask(attempt = 1): Promise<void> {
    const content = "[simulator: 20 tokens]";
    const answer = await sendChat(this.url, this.#key, { content });
    const text = await answer.text();
    if (answer.status === 200) {
      this.#complete += 1;
      return;
    }
    const isLast = answer.status !== 503 || attempt === ATTEMPTS_MAX;
    if (isLast) {
      this.failures.push(`${answer.status} ${text}`);
      return;
    }
    this.#repeated.push(text);
    await sleep(RETRY_MS);
    await this.#ask(attempt + 1);
  }
}

const reconnections = (
  { process }: RunningService,
): number => process.output().split('"event":"bus_reconnected"').length - 1;

/** The command line takes the new password of the bus; the old one is void. */
async function rotatesAdmin(
  secrets: DeployedSecrets,
  nats: NatsServer,
  adminEnv: ServiceEnv,
): Promise<void> {
  const old = await secrets.read("nats_admin_password");
  await secrets.run("rotate", "nats-admin");
  await nats.reload(await deployedNatsConfig(secrets));
  const { id } = await makeKey(adminEnv);
  await runKeys(
    adminEnv,
    "disable",
    id,
    "--stop-running",
  );
  const stranger = connectTestLink([nats.server], {
    credentials: { user: "key-admin", password: old },
    timing: { firstConnectMs: 0 },
  });
  await assert.rejects(stranger, /Authorization Violation/);
}

Deno.test("passwords are rotated under load without a failed request", async (t) => {
  await using secrets = await makeSecrets();
  await using nats = await startDeployedNats(secrets);
  await using redis = await startDeployedRedis(secrets);
  const envOf = (service: "edge" | "worker" | "media" | "admin") => ({
    ...PACE,
    ...deployedEnv({ secrets, nats, redis }, service),
  });
  await using gateway = await startGateway("services");
  const edge = await gateway.start("edge-auth", envOf("edge"));
  const worker = await gateway.start("chat-worker", envOf("worker"));
  const media = await gateway.start("media-worker", envOf("media"));
  const { key } = await makeKey(envOf("admin"));
  const load = new Load(edge.url, key);
  await load.goesOn();

  for (const [name, service] of Object.entries({ edge, worker, media })) {
    await t.step(`nats-${name}: the service takes the new one`, async () => {
      const before = reconnections(service);
      await secrets.run("rotate", `nats-${name}`);
      await nats.reload(await deployedNatsConfig(secrets));
      const what = () => `${name} to use it: ${service.process.output()}`;
      await waitFor(() => reconnections(service) > before, { what });
      await load.goesOn();
      assert.deepEqual(load.busTrouble(), []);
    });
  }

  await t.step(
    "nats-admin: and the old one is refused",
    () => rotatesAdmin(secrets, nats, envOf("admin")),
  );
  assert.deepEqual(load.busTrouble(), []);

  // Redis before 7.2 closes connections then, so a request may have to be retried.
  await t.step("redis-edge: both are valid, then the new one", async () => {
    await secrets.run("rotate", "redis-edge");
    await loadUsers({ secrets, redis });
    await load.goesOn();
    assert.deepEqual(load.failures, []);
    await using fresh = await gateway.start("edge-auth", envOf("edge"));
    load.url = fresh.url;
    edge.process.signal("SIGTERM");
    await edge.process.exited;
    await secrets.run("retire");
    await loadUsers({ secrets, redis });
    await load.goesOn();
    await load.end();
    assert.deepEqual(load.failures, []);
  });
});
