/**
 * What operators change beside the list of models reaches edges and workers, also those
 * that start later, and while key-admin is away.
 */
import assert from "node:assert/strict";
import type { Override } from "@gateway/shared/backends/overrides";
import { silentLog } from "@gateway/shared/process/log";
import { followOverrides as followAsWorker } from "@gateway/shared/backends/override_follower";
import { followOverrides as followAsEdge } from "../../services/edge-auth/overrides.ts";
import {
  repeatOverrides,
  tellOverrides,
} from "../../services/key-admin/domain/models/override_teller.ts";
import type { StoredOverride } from "../../services/key-admin/domain/models/override_store.ts";
import { connectTestLink } from "../support/servers/bus_link.ts";
import { startNatsServer } from "../support/servers/nats_server.ts";
import { until } from "../support/wait_for.ts";

const NOTE = { by: "op", atMs: 0, reason: "" };
const DRAIN: StoredOverride = {
  ...NOTE,
  what: "drain",
  model: "m",
  backend: "gpu",
};
const DISABLE: StoredOverride = { ...NOTE, what: "disable", model: "n" };

/** The overrides, as key-admin reads them. */
class FakeStore {
  constructor(public overrides: StoredOverride[]) {}

  list(): Promise<StoredOverride[]> {
    return Promise.resolve(this.overrides);
  }
}

/** The Redis of an edge, which has these. */
const redisWith = (overrides: readonly Override[]) => ({
  command: () => Promise.resolve(overrides.map((each) => JSON.stringify(each))),
});

Deno.test("two workers hear of each change, one of which starts late", async () => {
  await using nats = await startNatsServer();
  await using admin = await connectTestLink([nats.server]);
  await using first = await connectTestLink([nats.server]);
  await using late = await connectTestLink([nats.server]);
  const store = new FakeStore([]);
  const parts = { bus: admin.link, overrides: store };
  const stop = repeatOverrides({ ...parts, log: silentLog });
  try {
    await admin.link.flush();
    const ofFirst = await followAsWorker(first.link, silentLog);
    assert.equal(ofFirst.forBackend("m", "gpu"), undefined);
    store.overrides = [DRAIN];
    assert.ok(await tellOverrides(parts));
    await until(() => ofFirst.forBackend("m", "gpu")?.isDrained === true);
    const ofLate = await followAsWorker(late.link, silentLog);
    assert.equal(ofLate.forBackend("m", "gpu")?.isDrained, true);
    store.overrides = [];
    await tellOverrides(parts);
    await until(() =>
      [ofFirst, ofLate].every((each) =>
        each.forBackend("m", "gpu") === undefined
      )
    );
  } finally {
    stop();
  }
});

Deno.test("whoever misses a change hears of it when it is repeated", async () => {
  await using nats = await startNatsServer();
  await using admin = await connectTestLink([nats.server]);
  await using worker = await connectTestLink([nats.server]);
  const store = new FakeStore([]);
  const stop = repeatOverrides({
    bus: admin.link,
    overrides: store,
    log: silentLog,
  });
  try {
    await admin.link.flush();
    const overrides = await followAsWorker(worker.link, silentLog);
    store.overrides = [DRAIN];
    await until(() => overrides.forBackend("m", "gpu")?.isDrained === true);
  } finally {
    stop();
  }
});

Deno.test("while key-admin is away, edges read Redis, and workers that start ask them", async () => {
  await using nats = await startNatsServer();
  await using edge = await connectTestLink([nats.server]);
  await using worker = await connectTestLink([nats.server]);
  let disabled: ReadonlySet<string> = new Set();
  await followAsEdge({
    bus: edge.link,
    redis: redisWith([DRAIN, DISABLE]),
    catalog: {
      disable(ids) {
        disabled = ids;
      },
    },
    log: silentLog,
  });
  assert.deepEqual([...disabled], ["n"]);
  await edge.link.flush();
  const overrides = await followAsWorker(worker.link, silentLog);
  assert.equal(overrides.forBackend("m", "gpu")?.isDrained, true);
});

Deno.test("a worker that nobody answers starts with the list as it is", async () => {
  await using nats = await startNatsServer();
  await using worker = await connectTestLink([nats.server]);
  const overrides = await followAsWorker(worker.link, silentLog);
  assert.equal(overrides.forBackend("m", "gpu"), undefined);
});

Deno.test("an edge whose Redis does not tell it starts with the list, and follows key-admin", async () => {
  await using nats = await startNatsServer();
  await using edge = await connectTestLink([nats.server]);
  await using admin = await connectTestLink([nats.server]);
  let disabled: ReadonlySet<string> = new Set();
  await followAsEdge({
    bus: edge.link,
    redis: { command: () => Promise.reject(new Error("NOPERM")) },
    catalog: {
      disable(ids) {
        disabled = ids;
      },
    },
    log: silentLog,
  });
  await edge.link.flush();
  const overrides = new FakeStore([DISABLE]);
  await tellOverrides({ bus: admin.link, overrides });
  await until(() => disabled.has("n"));
});
