// Promise: what a request is charged is the same in limits, usage and metrics, and by
// one rule whenever its client leaves: the largest of what the model server stated,
// what was passed on, and what it makes as a whole. Each endpoint, through edge, bus
// and worker; docs/keys.md has the rule.
import assert from "node:assert/strict";
import { CATALOG } from "../../services/edge-auth/app_fixture.ts";
import { EdgeMetrics } from "../../services/edge-auth/metrics.ts";
import { runMedia } from "../../services/media-worker/media.ts";
import type { UsageUnit } from "@gateway/shared/keys/limiter_state";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import {
  hashKey,
  leaseKey,
  limiterKey,
  type Limits,
  type Principal,
  spendKey,
} from "@gateway/shared/keys/record";
import { type Catalog, ModelCatalog } from "@gateway/shared/models/catalog";
import { catalogFromSimulator } from "@gateway/shared/models/catalog_variables";
import { monotonicNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { MetricRegistry } from "@gateway/shared/process/metrics";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import type { RunRequest } from "@gateway/shared/worker/jobs/job_ports";
import {
  type AnswerMemory,
  WorkerMemory,
} from "@gateway/shared/worker/jobs/memory";
import { callApi } from "../support/chat_request.ts";
import {
  startFamily,
  startWorker,
} from "../support/gateway/in_process_worker.ts";
import {
  type LimitedEdge,
  SLOWER,
  startLimitedEdge,
} from "../support/gateway/limited_edge.ts";
import {
  readState,
  readUnits,
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../support/limits/admission_fixture.ts";
import {
  jsonResponse,
  lastChunk,
  STALL,
} from "../support/model_servers/model_answers.ts";
import { poolOf } from "../support/model_servers/recorded_context.ts";
import {
  startScriptedServer,
  type Step,
} from "../support/model_servers/scripted_server.ts";
import { startNatsServer } from "../support/servers/nats_server.ts";
import { until } from "../support/wait_for.ts";
import {
  type Charge,
  type Endpoint,
  ENDPOINTS,
  type Moment,
  MOMENTS,
  RECORDED_SECONDS,
} from "./leaving_costs_fixture.ts";

/** What is set for each day, so that it is metered. */
const LIMITS = {
  tokensPerDay: 1e6,
  imagesPerDay: 1e6,
  charactersPerDay: 1e6,
  audioSecondsPerDay: 1e6,
  videoSecondsPerDay: 1e6,
};

/** What the model server does for the request of a row, and how far it is. */
class Script {
  steps: readonly Step[] = [];
  #isSent = Promise.withResolvers<void>();

  /** Resolves when all steps were sent. */
  get arrival(): Promise<void> {
    return this.#isSent.promise;
  }

  set(steps: readonly Step[]): void {
    this.steps = steps;
    this.#isSent = Promise.withResolvers();
  }

  async *reply({ method }: { method: string }): AsyncIterable<Step> {
    if (method === "GET") {
      return yield* jsonResponse({ id: "theirs", status: "completed" });
    }
    const arrival = this.#isSent;
    const { steps } = this;
    yield* steps;
    arrival.resolve();
    if (steps.at(-1) !== lastChunk) yield STALL;
  }
}

/** Edge, workers and model server. */
interface Stack {
  readonly world: RedisWorld;
  readonly edge: LimitedEdge;
  readonly script: Script;
  readonly registry: MetricRegistry;
}

async function startStack(
  owner: AsyncDisposableStack,
  catalog: Catalog = CATALOG,
): Promise<Stack> {
  const script = new Script();
  const world = owner.use(await startRedisWorld());
  const { server: nats } = owner.use(await startNatsServer());
  const peer = owner.use(
    startScriptedServer({ reply: (request) => script.reply(request) }),
  );
  const workers = { servers: [nats], slower: SLOWER };
  owner.use(
    await startWorker({ ...workers, backend: { baseUrl: peer.baseUrl } }),
  );
  const memory = new WorkerMemory();
  const runners = new Map<string, RunRequest<[AnswerMemory]>>();
  for (const [id, { kind, backends }] of catalogFromSimulator(peer.baseUrl)) {
    const [config] = backends;
    if (kind === "chat" || config === undefined) continue;
    const server = new ModelServer({
      config,
      publicModel: id,
      apiKey: null,
      now: monotonicNow,
    });
    owner.defer(() => server.close());
    const pool = poolOf(server);
    runners.set(
      id,
      (request, call, memory) => runMedia(request, call, { pool, memory }),
    );
  }
  owner.use(
    await startFamily(workers, {
      family: "media",
      memory,
      runners,
      close: () => {},
    }),
  );
  const registry = new MetricRegistry();
  const metrics = new EdgeMetrics(registry);
  const { port } = world.redis;
  const edge = await startLimitedEdge(owner, {
    servers: [nats],
    port,
    metrics,
    door: { catalog },
  });
  await until(() => edge.dispatcher.workers.totals("media").workers === 1);
  await until(() => edge.dispatcher.workers.totals("chat").workers === 1);
  return { world, edge, script, registry };
}

/** A key for all endpoints, and its value. */
async function addKey(world: RedisWorld, limits: Partial<Limits> = LIMITS) {
  const value = mintKey(randomBytes);
  const scopes = "chat,image,speech,video,transcription";
  const key = await world.addKey({ scopes, limits });
  const name = hashKey(hashKeyValue(value));
  await world.command("SET", name, `${key.keyId}:${key.ownerId}`);
  return { key, value };
}

/** Sends the request, and leaves at the moment; after the end, it reads all. */
async function sendAndLeave(
  { edge, script }: Stack,
  endpoint: Endpoint,
  { parts, value }: { parts: Moment["parts"]; value: string },
): Promise<void> {
  const { head, end } = endpoint;
  const steps = parts === "all"
    ? [head, ...endpoint.parts, ...end]
    : parts === null
    ? []
    : [head, ...endpoint.parts.slice(0, parts)];
  script.set(steps);
  const client = new AbortController();
  const answered = endpoint.send(edge.baseUrl, value, client.signal);
  answered.catch(() => {}); // It leaves before the answer.
  await script.arrival;
  if (parts === "all") {
    const response = await answered;
    const text = await response.text();
    assert.equal(response.status, 200, text);
    if (endpoint.unit !== "videoSeconds") return;
    const { id } = JSON.parse(text);
    const video = await callApi(`${edge.baseUrl}/videos/${id}`, value);
    assert.equal((await video.json()).status, "completed");
    return;
  }
  if (parts !== null && endpoint.hasParts !== undefined) {
    const reader = (await answered).body?.getReader() ?? assert.fail();
    let received = "";
    while (!endpoint.hasParts(received, parts)) {
      const { value = new Uint8Array(), done } = await reader.read();
      assert.ok(!done, received);
      received += String.fromCharCode(...value);
    }
  }
  client.abort();
}

/** Waits until the requests of a key have ended, and all is settled. */
async function settled({ world, edge }: Stack, key: Principal): Promise<void> {
  await until(() => edge.dispatcher.running === 0);
  await until(async () => await world.command("ZCARD", leaseKey(key)) === 0);
  await until(() => edge.limiter.leases.unsettled === 0);
}

/** The sums of the counters of what was charged, over all models. */
function inMetrics(registry: MetricRegistry): Required<Charge> {
  const text = registry.text();
  const sum = (name: string, label: string) =>
    [...text.matchAll(new RegExp(`^${name}\\{(.*)\\} (\\d+)$`, "gm"))]
      .filter(([, labels = ""]) => labels.includes(`"${label}"`))
      .reduce((total, [, , count]) => total + Number(count), 0);
  const units = (label: string) => sum("gateway_media_units_total", label);
  return {
    promptTokens: sum("gateway_tokens_total", "prompt"),
    completionTokens: sum("gateway_tokens_total", "completion"),
    images: units("images"),
    characters: units("characters"),
    audioSeconds: units("audio_seconds"),
    videoSeconds: units("video_seconds"),
  };
}

/** What the limits of the day have of a key. */
async function inLimits(
  world: RedisWorld,
  key: Principal,
  unit: UsageUnit | null,
): Promise<number> {
  const name = limiterKey(key);
  const used = unit === null
    ? (await readState(world, name))?.dayTokens
    : (await readUnits(world, name, unit))?.count;
  return used ?? 0;
}

async function chargesTheSame(
  stack: Stack,
  endpoint: Endpoint,
  moment: Moment,
): Promise<void> {
  const { world, registry } = stack;
  const { key, value } = await addKey(world);
  const before = inMetrics(registry);
  await sendAndLeave(stack, endpoint, { parts: moment.parts, value });
  await settled(stack, key);
  const expected = endpoint.charged(moment);
  const sum = Object.values(expected).reduce((total, each) => total + each, 0);
  const after = inMetrics(registry);
  const usage = await usageCounted(world, key);
  const nothing = {
    promptTokens: 0,
    completionTokens: 0,
    images: 0,
    characters: 0,
    audioSeconds: 0,
    videoSeconds: 0,
  };
  const counted = {
    metrics: Object.fromEntries(
      Object.entries(after).map(([name, total]) => [
        name,
        total - Number(Reflect.get(before, name)),
      ]),
    ),
    usage: Object.fromEntries(
      Object.keys(nothing).map((name) => [name, Reflect.get(usage, name)]),
    ),
    limits: await inLimits(world, key, endpoint.unit),
  };
  const charged = { ...nothing, ...expected };
  assert.deepEqual(counted, { metrics: charged, usage: charged, limits: sum });
}

Deno.test("limits, usage and metrics charge the same, whenever the client leaves", async (t) => {
  await using owner = new AsyncDisposableStack();
  const stack = await startStack(owner);
  for (const endpoint of ENDPOINTS) {
    for (const moment of MOMENTS) {
      await t.step(
        `${endpoint.name}, left ${moment.name}`,
        () => chargesTheSame(stack, endpoint, moment),
      );
    }
  }
});

/** Billionths for a second of a recording. */
const SECOND_NANOS = 10_000_000;
/** What the recording of the fixture costs. */
const RECORDING_NANOS = RECORDED_SECONDS * SECOND_NANOS;

/** The models of the simulator, of which transcriptions have a price by length. */
function pricedCatalog(): Catalog {
  const { models, servers } = CATALOG.file;
  const priced = models.map((model) =>
    model.kind === "transcription"
      ? { ...model, prices: { second: SECOND_NANOS } }
      : model
  );
  return new ModelCatalog(priced, servers, { currency: "USD", id: "t" });
}

/** What is spent and held of the budget of a key. */
async function booked(world: RedisWorld, key: Principal) {
  const name = spendKey(key, "total");
  const amounts = await world.command("HMGET", name, "s", "h");
  assert.ok(Array.isArray(amounts));
  return amounts.map(Number);
}

Deno.test("a transcription holds what its recording costs, and others do not get that", async () => {
  const endpoint = ENDPOINTS.find(({ unit }) => unit === "audioSeconds") ??
    assert.fail();
  await using owner = new AsyncDisposableStack();
  const stack = await startStack(owner, pricedCatalog());
  const { world, edge, script } = stack;
  const budgetTotal = 2 * RECORDING_NANOS - 1;
  const { key, value } = await addKey(world, { budgetTotal });
  const client = new AbortController();
  const running = endpoint.send(edge.baseUrl, value, client.signal);
  running.catch(() => {}); // It leaves before the answer.
  await script.arrival;
  assert.deepEqual(await booked(world, key), [0, RECORDING_NANOS]);
  const other = await endpoint.send(edge.baseUrl, value, client.signal);
  const { error } = await other.json();
  assert.deepEqual([other.status, error.code], [429, "rate_limit_exceeded"]);
  assert.match(error.message, /0 of 0\.059999999 USD spent, 0\.03 held/);
  client.abort();
  await settled(stack, key);
  assert.deepEqual(await booked(world, key), [RECORDING_NANOS, 0]);
  // Alone, a request may hold what is left.
  await sendAndLeave(stack, endpoint, { parts: "all", value });
  await settled(stack, key);
  assert.deepEqual(await booked(world, key), [2 * RECORDING_NANOS, 0]);
  // Without a budget, it is admitted once.
  const free = await addKey(world);
  const { admissions } = edge;
  await sendAndLeave(stack, endpoint, { parts: "all", value: free.value });
  assert.equal(edge.admissions, admissions + 1);
  await settled(stack, free.key);
});
