/**
 * Edges with the real admission, in the process of a test: a Redis, a NATS server, a
 * worker whose model server is the test's, and any number of edges, each with a
 * connection of its own to Redis.
 */
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import type { Catalog } from "@gateway/shared/models/catalog";
import {
  leaseKey,
  ownerLeaseKey,
  type Principal,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import {
  type KeyOptions,
  type RedisWorld,
  startRedisWorld,
  STORE_NAME,
} from "../limits/admission_fixture.ts";
import { callApi, postChat } from "../chat_request.ts";
import { type NatsServer, startNatsServer } from "../servers/nats_server.ts";
import { assertNoKeys } from "../recording_log.ts";
import {
  hello,
  type ModelServer,
  type ScriptedCall,
  type ScriptedModelServer,
  scriptedModelServer,
} from "../model_servers/scripted_model_server.ts";
import type { Toxics } from "../servers/tcp_proxy.ts";
import { until } from "../wait_for.ts";
import { readStatus } from "./chat_status.ts";
import { type InProcessWorker, startWorker } from "./in_process_worker.ts";
import {
  type LimitedEdge,
  type LimitedEdgeOptions,
  SLOWER,
  startLimitedEdge,
} from "./limited_edge.ts";

/** A key in Redis. */
export interface TestKey extends Principal {
  /** The secret value, which callers send. */
  readonly value: string;
}

/** What differs between gateways with limits. */
export interface LimitedOptions extends LimitedEdgeOptions {
  /** 1 if left out. */
  edges?: number;
  /** What the model server does; it says "Hello" if left out. */
  onCall?: (call: ScriptedCall) => void;
  /** Another model server, in place of the scripted one. */
  runsOn?: ModelServer;
  /** Models with servers of their own, in place of the default model. */
  catalog?: Catalog;
  /** How many times longer its worker waits for edges; {@link SLOWER} if left out. */
  workerSlower?: number;
  /** Whether NATS has JetStream; only if answers are kept, if left out. */
  jetStream?: boolean;
  /** Lines of a redis.conf. */
  redisConfig?: string[];
}

/** What {@link LimitedGateway.ask} sends, and to which edge. */
export interface AskOptions {
  /** The first if left out. */
  edge?: number;
  /** It asks for 16 tokens where the body does not say otherwise. */
  body?: object;
  signal?: AbortSignal | null;
}

/** Enough that nothing waits for the worker where a test does not mean it to. */
const SLOTS = 4_096;
/** Errors too, which JSON leaves out. */
const WHOLE = { depth: 10, iterableLimit: Infinity, strAbbreviateSize: 1e9 };

/** Starts all of it. When it ends, the logs of its edges must contain no key. */
export async function startLimited(
  options: LimitedOptions,
): Promise<LimitedGateway> {
  await using started = new AsyncDisposableStack();
  const edges: LimitedEdge[] = [];
  started.defer(() => {
    for (const { log } of edges) {
      assertNoKeys(Deno.inspect(log.lines, WHOLE), "the log of an edge");
    }
  });
  const config = options.redisConfig ?? [];
  const world = started.use(await startRedisWorld({ config }));
  const { port } = world.redis;
  await world.command("SET", STORE_KEY, STORE_NAME);
  const { jetStream = options.keeps !== undefined } = options;
  const nats = started.use(await startNatsServer({ jetStream }));
  const servers = [nats.server];
  const model = scriptedModelServer(options.onCall ?? hello);
  const backend = options.runsOn ?? model;
  const { catalog } = options;
  const worker = started.use(
    await startWorker({
      servers,
      backend,
      ...catalog && { catalog },
      slots: SLOTS,
      slower: options.workerSlower ?? SLOWER,
    }),
  );
  const door = { ...options.door, ...catalog && { catalog } };
  while (edges.length < (options.edges ?? 1)) {
    const edge = { ...options, door, servers, port };
    edges.push(await startLimitedEdge(started, edge));
  }
  const parts = { edges, world, backend: model, worker, nats };
  return new LimitedGateway(started.move(), parts);
}

/** Edges, and the Redis that admits their requests. */
export class LimitedGateway implements AsyncDisposable {
  readonly edges: readonly LimitedEdge[];
  readonly world: RedisWorld;
  /** The scripted model server, which nothing calls if the test has another one. */
  readonly backend: ScriptedModelServer;
  readonly worker: InProcessWorker;
  readonly nats: NatsServer;
  readonly #owned: AsyncDisposableStack;

  constructor(
    owned: AsyncDisposableStack,
    { edges, world, backend, worker, nats }: {
      edges: readonly LimitedEdge[];
      world: RedisWorld;
      backend: ScriptedModelServer;
      worker: InProcessWorker;
      nats: NatsServer;
    },
  ) {
    this.#owned = owned;
    this.edges = edges;
    this.world = world;
    this.backend = backend;
    this.worker = worker;
    this.nats = nats;
  }

  /** The first edge. */
  get edge(): LimitedEdge {
    return this.edges[0] ?? assert.fail("no edge");
  }

  /** Between all edges and Redis. */
  readonly proxy = {
    set: (toxics: Toxics) =>
      this.edges.forEach(({ proxy }) => proxy.set(toxics)),
    cut: () => this.edges.forEach(({ proxy }) => proxy.cut()),
  };

  /** The base URL of an edge, as an SDK takes it. */
  baseUrl(edge = 0): string {
    return this.edges[edge]?.baseUrl ?? "";
  }

  /** Creates a key. */
  async addKey(options?: KeyOptions): Promise<TestKey> {
    const value = mintKey(randomBytes);
    const principal = await this.world.addKey(options);
    await this.world.nameKey(value, principal);
    return { ...principal, value };
  }

  /** Sends a chat request. */
  ask(
    { value }: TestKey,
    { edge = 0, body = {}, signal = null }: AskOptions = {},
  ): Promise<Response> {
    return postChat(this.baseUrl(edge), value, {
      body: { max_tokens: 16, ...body },
      signal,
    });
  }

  /** The status of the answer to a chat request. */
  status(key: TestKey, options?: AskOptions): Promise<number> {
    return readStatus(this.ask(key, options));
  }

  /** Gets a path below `/v1` of the first edge. */
  get({ value }: TestKey, path: string): Promise<Response> {
    return callApi(`${this.baseUrl()}/${path}`, value);
  }

  /** How many leases of a key are in Redis, dead or alive. */
  async leases(key: TestKey): Promise<number> {
    return Number(await this.world.command("ZCARD", leaseKey(key)));
  }

  /**
   * Waits until the key and its owner hold no lease and every edge knows that: all is
   * settled.
   */
  async settled(key: TestKey, timeoutMs?: number): Promise<void> {
    for (const name of [leaseKey(key), ownerLeaseKey(key.ownerId)]) {
      const isFree = async () => await this.world.command("ZCARD", name) === 0;
      await until(isFree, timeoutMs);
    }
    // Redis has settled all of them; its last answers may be on their way.
    await until(() =>
      this.edges.every(({ limiter }) => limiter.leases.unsettled === 0)
    );
  }

  /** Ends all of it, the last part first. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#owned.disposeAsync();
  }
}
