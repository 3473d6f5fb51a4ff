// Promise: rotating passwords by the steps of docs/security.md fails no request and
// cuts off no stream, and the old passwords are void afterwards.
import assert from "node:assert/strict";
import { connectTestLink } from "../support/bus_link.ts";
import {
  deployedEnv,
  deployedNatsConfig,
  loadUsers,
  makeSecrets,
  startDeployedNats,
  startDeployedRedis,
} from "../support/deployed/deployed_stores.ts";
import { sendChat } from "../support/gateway/chat_status.ts";
import { startGateway } from "../support/gateway/gateway.ts";
import { makeKey, runKeys } from "../support/gateway/key_commands.ts";
import { RunningService } from "../support/gateway/services.ts";
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
function startLoad(url: string, key: string) {
  const failures: string[] = [];
  const repeated: string[] = [];
  const load = { url, complete: 0, isOver: false, failures };
  const ask = async (attempt = 1): Promise<void> => {
    const said = "[simulator: 20 tokens]";
    const answer = await sendChat(load.url, key, { content: said });
    const text = await answer.text();
    if (answer.status === 200) {
      load.complete += 1;
      return;
    }
    const isLast = answer.status !== 503 || attempt === ATTEMPTS_MAX;
    if (isLast) {
      failures.push(`${answer.status} ${text}`);
      return;
    }
    repeated.push(text);
    await sleep(RETRY_MS);
    return await ask(attempt + 1);
  };
  const lanes = Array.from({ length: LANES }, async () => {
    while (!load.isOver) await ask().catch((e) => failures.push(String(e)));
  });
  return Object.assign(load, {
    ended: Promise.all(lanes),
    /** Waits until it goes on. */
    async goesOn() {
      const wanted = load.complete + PROOF_ANSWERS;
      const what = () => `answers; so far ${failures.join("\n")}`;
      await waitFor(() => load.complete >= wanted, { what });
    },
    /** Failures, and retries for another reason than a slow Redis. */
    busTrouble: () =>
      failures.concat(repeated.filter((x) => !/service_unavailable/.test(x))),
  });
}

const reconnections = (
  { process }: RunningService,
): number => process.output().split('"event":"bus_reconnected"').length - 1;

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
  const load = startLoad(edge.url, key);
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

  await t.step("nats-admin: and the old one is refused", async () => {
    const old = await secrets.read("nats_admin_password");
    await secrets.run("rotate", "nats-admin");
    await nats.reload(await deployedNatsConfig(secrets));
    const { id } = await makeKey(envOf("admin"));
    await runKeys(
      envOf("admin"),
      "disable",
      id,
      "--stop-running",
    );
    const stranger = connectTestLink([nats.server], {
      credentials: { user: "key-admin", password: old },
      timing: { firstConnectMs: 0 },
    });
    await assert.rejects(stranger, /Authorization Violation/);
    assert.deepEqual(load.busTrouble(), []);
  });

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
    load.isOver = true;
    await load.ended;
    assert.deepEqual(load.failures, []);
  });
});
