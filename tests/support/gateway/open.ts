/**
 * Edges and workers in the process of a test, between an HTTP client and a model server
 * of the test. There is no Redis, and every key is admitted.
 */
import assert from "node:assert/strict";
import { mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { postChat } from "../chat_request.ts";
import { type NatsServer, startNatsServer } from "../servers/nats_server.ts";
import { startTcpProxy, type TcpProxy } from "../servers/tcp_proxy.ts";
import { until } from "../wait_for.ts";
import {
  type EdgeOptions,
  type InProcessEdge,
  startEdge,
} from "./in_process_edge.ts";
import {
  type InProcessWorker,
  startWorker,
  type WorkerBackend,
  type WorkerOptions,
} from "./in_process_worker.ts";

/** The key of all requests: an open gateway admits every key. */
export const TEST_KEY = mintKey(randomBytes);

/** What differs in the first edge. With `servers`, no NATS server is started. */
export type OpenOptions = Partial<EdgeOptions>;

/** Starts a bus with an edge, to which a test adds workers and further edges. */
export async function startOpen(options: OpenOptions): Promise<OpenGateway> {
  await using starting = new AsyncDisposableStack();
  const nats = options.servers === undefined
    ? starting.use(await startNatsServer())
    : null;
  const servers = options.servers ?? [nats?.server ?? ""];
  const edge = starting.use(await startEdge({ ...options, servers }));
  return new OpenGateway(starting.move(), { nats, servers, edge });
}

/** A bus, edges and workers. All of them end with it. */
export class OpenGateway implements AsyncDisposable {
  /** The first edge. */
  readonly edge: InProcessEdge;
  readonly #nats: NatsServer | null;
  readonly #servers: string[];
  readonly #owned: AsyncDisposableStack;
  readonly #edges: InProcessEdge[];
  readonly #workers: InProcessWorker[] = [];

  constructor(
    owned: AsyncDisposableStack,
    { nats, servers, edge }: {
      nats: NatsServer | null;
      servers: string[];
      edge: InProcessEdge;
    },
  ) {
    this.#owned = owned;
    this.#nats = nats;
    this.#servers = servers;
    this.edge = edge;
    this.#edges = [edge];
  }

  /** Its NATS server. */
  get nats(): NatsServer {
    return this.#nats ?? assert.fail("the test has its own servers");
  }

  /** The base URL of an edge, as an SDK takes it. */
  baseUrl(edge = 0): string {
    return this.#edges[edge]?.baseUrl ?? "";
  }

  /** Starts another edge. */
  async addEdge(options?: Partial<EdgeOptions>): Promise<InProcessEdge> {
    const edge = await startEdge({ servers: this.#servers, ...options });
    this.#edges.push(this.#owned.use(edge));
    return edge;
  }

  /** Starts a worker. */
  async addWorker(
    backend: WorkerBackend,
    options?: Partial<WorkerOptions>,
  ): Promise<InProcessWorker> {
    const servers = this.#servers;
    const worker = await startWorker({ servers, backend, ...options });
    this.#workers.push(this.#owned.use(worker));
    return worker;
  }

  /** Something between the bus and the one that connects to its `server`. */
  addProxy(): TcpProxy {
    return this.#owned.use(startTcpProxy(this.nats.port));
  }

  /** Waits until nothing runs or waits at its edges and living workers. */
  async idle(): Promise<void> {
    for (const { dispatcher } of this.#edges) {
      await until(() => dispatcher.running + dispatcher.queue.length === 0);
    }
    for (const { worker } of this.#workers.filter((each) => each.isRunning)) {
      await until(() => worker.inFlight + worker.jobCount === 0);
    }
  }

  /** Ends all of it, the last part first. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.#owned.disposeAsync();
  }
}

/** Sends a chat request to an edge that admits every key. */
export function chat(
  edge: InProcessEdge,
  body: object,
  { signal = null }: { signal?: AbortSignal | null } = {},
): Promise<Response> {
  return postChat(edge.baseUrl, TEST_KEY, { body, signal });
}
