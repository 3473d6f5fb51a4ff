/**
 * Guarantee: a key that begins many downloads and reads none of them keeps nobody else
 * waiting. They are among its requests while they run, and count as none afterwards.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import type { JobRequest } from "@gateway/shared/bus/job";
import { encodeMediaHead } from "@gateway/shared/bus/media_head";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import {
  hashKey,
  leaseKey,
  type Principal,
  STORE_KEY,
} from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import type {
  JobContext,
  RunRequest,
} from "@gateway/shared/worker/jobs/job_ports";
import { WorkerMemory } from "@gateway/shared/worker/jobs/memory";
import { amountOf } from "../../../tests/support/amount.ts";
import { callApi } from "../../../tests/support/chat_request.ts";
import { startFamily } from "../../../tests/support/gateway/in_process_worker.ts";
import {
  type LimitedEdge,
  startLimitedEdge,
} from "../../../tests/support/gateway/limited_edge.ts";
import {
  type KeyOptions,
  type RedisWorld,
  startRedisWorld,
  STORE_NAME,
  usageCounted,
} from "../../../tests/support/limits/admission_fixture.ts";
import { startNatsServer } from "../../../tests/support/servers/nats_server.ts";
import {
  startStopwatch,
  until,
  waitFor,
} from "../../../tests/support/wait_for.ts";

const MODEL = "simulated-video-1";
const CONNECTIONS = amountOf({ usual: 60, full: 300 });
/** Slots of the worker: fewer than connections, as in any deployment. */
const SLOTS = 4;
const OTHERS = 5;
/** Each waits until one download gives way, which is for a second. */
const OTHERS_MS_MAX = 10_000;
/** Nothing was sent for this long. */
const STALLED_MS = 200;
const PART = new Uint8Array(64 * 1024);

/** Sends files without end, as fast as their clients read them. */
class FileServer {
  #parts = 0;

  async send({ write, signal }: JobContext): Promise<never> {
    void write(encodeMediaHead({ content_type: "video/mp4" }), 0);
    for (;;) {
      this.#parts += 1;
      await (write(PART, 0) ?? Promise.resolve());
      signal.throwIfAborted();
    }
  }

  /** Waits until no buffer on the way takes any more. */
  async stalled(): Promise<void> {
    let before = 0;
    await waitFor(() => {
      const isStalled = this.#parts > 0 && this.#parts === before;
      before = this.#parts;
      return isStalled;
    }, { what: "full buffers", intervalMs: STALLED_MS });
  }
}

const isDownload = (request: JobRequest) =>
  "action" in request && request.action === "content";

/** A video that is ready as soon as anybody asks, and its file. */
const runWith = (files: FileServer): RunRequest => async (request, context) => {
  if (isDownload(request)) return await files.send(context);
  const video = {
    backend: "simulator",
    id: "theirs",
    status: "completed",
    progress: 100,
    completed_at: null,
    expires_at: null,
    seconds: "4",
    size: null,
    error: null,
  };
  const head = encodeMediaHead({ content_type: "application/json" });
  void context.write(head + JSON.stringify(video), 0);
  return { usage: null, tokens: 0 };
};

/** A key, and its secret value. */
interface Caller extends Principal {
  readonly value: string;
}

/** An edge with its admission, and a worker with {@link SLOTS}. */
class Stack {
  readonly #world: RedisWorld;
  readonly edge: LimitedEdge;
  readonly files: FileServer;

  private constructor(
    world: RedisWorld,
    { edge, files }: { edge: LimitedEdge; files: FileServer },
  ) {
    this.#world = world;
    this.edge = edge;
    this.files = files;
  }

  static async start(owner: AsyncDisposableStack): Promise<Stack> {
    const world = owner.use(await startRedisWorld());
    await world.command("SET", STORE_KEY, STORE_NAME);
    const { server } = owner.use(await startNatsServer());
    const files = new FileServer();
    owner.use(
      await startFamily({ servers: [server], slots: SLOTS }, {
        family: "media",
        memory: new WorkerMemory(),
        runners: new Map([[MODEL, runWith(files)]]),
        close: () => {},
      }),
    );
    const edge = await startLimitedEdge(owner, {
      servers: [server],
      port: world.redis.port,
      // The promise is about time.
      slower: 1,
    });
    await until(() => edge.dispatcher.workers.totals("media").workers === 1);
    return new Stack(world, { edge, files });
  }

  async addKey(limits: KeyOptions["limits"] = {}): Promise<Caller> {
    const value = mintKey(randomBytes);
    const principal = await this.#world.addKey({ scopes: "video", limits });
    const { keyId, ownerId } = principal;
    const name = hashKey(hashKeyValue(value));
    await this.#world.command("SET", name, `${keyId}:${ownerId}`);
    return { value, ...principal };
  }

  /** Starts a video, and returns the status and the id. */
  async begin({ value }: Caller): Promise<{ status: number; id: string }> {
    const body = { model: MODEL, prompt: "p", seconds: "4" };
    const url = `${this.edge.baseUrl}/videos`;
    const response = await callApi(url, value, { body });
    return { status: response.status, id: (await response.json()).id };
  }

  /** Begins a download, and reads none of it. */
  async download({ value }: Caller, id: string): Promise<Socket> {
    const { port } = new URL(this.edge.baseUrl);
    const socket = connect(Number(port), "127.0.0.1");
    socket.on("error", () => {}); // It may be cut.
    await once(socket, "connect");
    socket.write(
      `GET /v1/videos/${id}/content HTTP/1.1\r\nhost: x\r\n` +
        `authorization: Bearer ${value}\r\n\r\n`,
    );
    return socket;
  }

  /** How many requests of a key run, as Redis has it. */
  async running(key: Caller): Promise<number> {
    return Number(await this.#world.command("ZCARD", leaseKey(key)));
  }

  /** How many requests of a key were counted. */
  async counted(key: Caller): Promise<number> {
    return (await usageCounted(this.#world, key)).requests;
  }
}

const ROWS = [
  { whose: "without limits", limits: {}, most: CONNECTIONS },
  { whose: "with 2 at the same time", limits: { concurrency: 2 }, most: 2 },
];

for (const { whose, limits, most } of ROWS) {
  Deno.test(`${CONNECTIONS} downloads of a key ${whose} that nobody reads keep nobody else waiting`, async () => {
    await using owner = new AsyncDisposableStack();
    const stack = await Stack.start(owner);
    const { edge: { dispatcher } } = stack;
    const [slow, other] = [await stack.addKey(limits), await stack.addKey()];
    const { id } = await stack.begin(slow);
    const sockets = await Promise.all(
      Array.from({ length: CONNECTIONS }, () => stack.download(slow, id)),
    );
    owner.defer(() => sockets.forEach((socket) => socket.destroy()));
    await until(() => dispatcher.running >= Math.min(SLOTS, most));
    assert.ok(dispatcher.running <= most, `${dispatcher.running} run`);
    await stack.files.stalled();
    using watch = startStopwatch();
    const statuses: number[] = [];
    while (statuses.length < OTHERS) {
      statuses.push((await stack.begin(other)).status);
    }
    const tookMs = watch.ms;
    assert.deepEqual(statuses, Array(OTHERS).fill(200));
    assert.ok(tookMs < OTHERS_MS_MAX, `the others took ${tookMs} ms`);
    sockets.forEach((socket) => socket.destroy());
    await until(() => dispatcher.running === 0);
    await until(async () => await stack.running(slow) === 0);
    assert.equal(await stack.counted(slow), 1, "only the video counts");
  });
}
