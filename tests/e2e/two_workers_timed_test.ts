// Two edges and two workers, first in peace and then while their processes fail, in
// one gateway, because its start costs more than most of what is tested. The promises
// are in the files of the checks, which the full run (tests/support/amount.ts) tries
// with more requests.
import { DEFAULT_MODEL_ID } from "@gateway/shared/models/catalog";
import { startGateway } from "../support/gateway/gateway.ts";
import { startSimulator } from "../support/gateway/simulator.ts";
import { makeTempDir } from "../support/process.ts";
import { startRedisServer } from "../support/servers/redis_server.ts";
import {
  CHAOS_PRICES,
  checkLedgerUnderFaults,
} from "./faults/ledger_checks.ts";
import { checkProcessFaults } from "./faults/process_checks.ts";
import { LimitedProviders } from "./server_keys_checks.ts";

/** The default model at a server, with prices. */
const defaultModelAt = (base_url: string) => ({
  id: DEFAULT_MODEL_ID,
  prices: CHAOS_PRICES,
  backends: [{ type: "openai", base_url, model: DEFAULT_MODEL_ID }],
});

Deno.test("two edges and two workers", async (t) => {
  await using simulator = startSimulator();
  await using providers = new LimitedProviders();
  // A Redis that waits 150 ms for its disk is answered with 503: this one leaves the
  // disk to the system, and has its data again when it was killed.
  const args = ["--appendonly", "yes", "--appendfsync", "no"];
  await using redis = await startRedisServer({ args });
  await using files = await makeTempDir();
  const MODELS_FILE = `${files.path}/models.json`;
  const models = [defaultModelAt(simulator.url), ...providers.models];
  await Deno.writeTextFile(MODELS_FILE, JSON.stringify({ models }));
  await using gateway = await startGateway("launched", {
    edges: 2,
    workers: 2,
    env: {
      MODELS_FILE,
      ...providers.env,
      DRAIN_SECONDS: "1",
      REDIS_URL: redis.url,
    },
  });

  await t.step(
    "the keys of model servers are used together",
    (t) => providers.check(t, gateway),
  );

  await t.step(
    "processes that fail",
    (t) => checkProcessFaults(t, simulator, gateway),
  );

  await t.step(
    "edges, workers and Redis killed under load: the ledger adds up",
    () => checkLedgerUnderFaults(gateway, redis),
  );
});
