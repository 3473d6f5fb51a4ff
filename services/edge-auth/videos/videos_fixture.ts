/** An edge with videos on a Redis, whose workers say what the test says. */
import assert from "node:assert/strict";
import { encodeMediaHead } from "@gateway/shared/bus/media_head";
import { mintKey } from "@gateway/shared/keys/key";
import * as record from "@gateway/shared/keys/record";
import { ApiError, type ErrorCode } from "@gateway/shared/openai/error";
import type { EngineVideo, VideoRequest } from "@gateway/shared/openai/media";
import { monotonicNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import type { RedisLink } from "@gateway/shared/redis/link";
import {
  type RedisWorld,
  startRedisWorld,
  usageCounted,
} from "../../../tests/support/limits/admission_fixture.ts";
import { callApi } from "../../../tests/support/chat_request.ts";
import { createRecordingLog } from "../../../tests/support/recording_log.ts";
import { waitFor } from "../../../tests/support/wait_for.ts";
import { CATALOG, type ServedApp, startApp } from "../app_fixture.ts";
import {
  type AnswerSink,
  type RunJob,
  RunOutcome,
  type StartedRun,
} from "../dispatch/outcome.ts";
import { WholeBody } from "../dispatch/request_body.ts";
import { LimitedAdmission } from "../limits/admission.ts";
import { Limiter } from "../limits/limiter.ts";
import { EDGE_SCRIPTS } from "../limits/scripts.ts";
import type { RunStarter } from "../requests/run_record.ts";
import { VIDEO_SCRIPTS, VideoJobs } from "./jobs.ts";
import { VideoKeeper, type VideoKeeperOptions } from "./keeper.ts";

/** The model of the videos. */
export const MODEL = "simulated-video-1";
/** What must be written nowhere. */
export const PROMPT = "a secret prompt";
/** A job fails when its engine has been out of reach for this long. */
export const LOST_MS = 1_000;

const KEY = mintKey(randomBytes);

/** What the model server says: a state, an error, or nothing of use. */
export type Reply = Partial<EngineVideo> | ErrorCode | "nothing";

/** A Redis with all scripts of an edge. */
export function startWorld(): Promise<RedisWorld> {
  return startRedisWorld({ scripts: [...EDGE_SCRIPTS, ...VIDEO_SCRIPTS] });
}

/** A model server for videos, in place of the dispatcher and the workers behind it. */
class ScriptedEngine implements RunStarter {
  /** What it was asked, in order. */
  requests: VideoRequest[] = [];
  /** What it says. */
  reply: (request: VideoRequest) => Reply = () => ({});
  /** The requests of its keys are stopped. */
  isStopped = false;

  isStoppedSince(): boolean {
    return this.isStopped;
  }

  start(
    { body }: RunJob,
    sink: AnswerSink,
    onEnded: (outcome: RunOutcome) => void,
  ): StartedRun {
    const bytes = body instanceof WholeBody ? body.bytes : null;
    const request = JSON.parse(new TextDecoder().decode(bytes ?? undefined));
    assert.ok(isVideo(request));
    this.requests.push(request);
    queueMicrotask(() => onEnded(answer(sink, this.reply(request))));
    return { delivered: () => {}, cancel: () => {} };
  }
}

function isVideo(request: object): request is VideoRequest {
  return "action" in request;
}

/** Passes the reply on, as a worker does. */
function answer(sink: AnswerSink, reply: Reply): RunOutcome {
  const outcome = new RunOutcome();
  outcome.dispatchMs = 1;
  if (typeof reply === "string" && reply !== "nothing") {
    const error = new ApiError(reply, "It said so.");
    sink.onError(error);
    return Object.assign(outcome, { kind: "failed", error });
  }
  const video = reply === "nothing" ? null : {
    backend: "simulator",
    id: "theirs",
    status: "queued",
    progress: 0,
    completed_at: null,
    expires_at: null,
    seconds: null,
    size: null,
    error: null,
    ...reply,
  };
  const head = encodeMediaHead({ content_type: "application/json" });
  const text = head + JSON.stringify(video);
  sink.onPayload(new TextEncoder().encode(text), 1);
  sink.onEnd();
  return outcome;
}

/** What differs between edges. */
export interface VideoEdgeOptions extends Partial<VideoKeeperOptions> {
  /** How long after its start a job is due, in ms. */
  sweepMs?: number;
  /** Where Redis is. */
  url?: string;
}

/** A request about videos: the method, the path after `/v1/videos`, and the body. */
export interface VideoAsk {
  readonly method?: string;
  readonly path?: string;
  readonly body?: object;
}

/** An edge in the process of a test. */
export class VideoEdge {
  readonly redis: RedisLink;
  readonly engine = new ScriptedEngine();
  readonly log = createRecordingLog();
  /** How far its clock is ahead, in ms. */
  aheadMs = 0;
  /** The seconds of the videos that it has counted. */
  readonly charges: number[] = [];
  readonly videos: VideoKeeper;
  readonly #limiter: Limiter;
  #app: ServedApp | null = null;
  /** Whose key the next request has. */
  #principal: record.Principal = { keyId: "", ownerId: "" };

  private constructor(
    redis: RedisLink,
    { sweepMs = 60_000, url: _, ...more }: VideoEdgeOptions,
  ) {
    this.redis = redis;
    this.#limiter = new Limiter({
      redis,
      ...this.#tools,
      deadlineMs: 10_000,
    });
    this.videos = new VideoKeeper({
      jobs: new VideoJobs({ redis, sweepMs }),
      limiter: this.#limiter,
      dispatcher: this.engine,
      catalog: CATALOG,
      log: this.log,
      wallNow: () => Date.now() + this.aheadMs,
      onMade: (_of, { unitsMade }) => void this.charges.push(unitsMade ?? 0),
      limits: { freshMs: 0, engineLostMs: LOST_MS, lookMs: 20 },
      ...more,
    });
  }

  /** Starts an edge on this Redis. */
  static async start(
    world: RedisWorld,
    options: VideoEdgeOptions = {},
  ): Promise<VideoEdge> {
    const edge = new VideoEdge(await world.open(options.url), options);
    await edge.#serve();
    return edge;
  }

  /** Sends a request with this key. */
  async ask(
    key: record.Principal,
    { method = "GET", path = "", body }: VideoAsk,
  ) {
    this.#principal = key;
    const url = `${this.#app?.origin}/v1/videos${path}`;
    const response = await callApi(url, KEY, { body, method });
    return { status: response.status, body: await response.json() };
  }

  /** Starts a video of eight seconds, and returns its id. */
  async begin(key: record.Principal): Promise<string> {
    const fields = { model: MODEL, prompt: PROMPT, seconds: "8" };
    const { status, body } = await this.ask(key, {
      method: "POST",
      body: fields,
    });
    assert.equal(status, 200, JSON.stringify(body));
    return body.id;
  }

  async [Symbol.asyncDispose]() {
    await this.#app?.[Symbol.asyncDispose]();
    await this.#limiter.leases.stop(1_000);
  }

  get #tools() {
    return { now: monotonicNow, random: Math.random, log: this.log };
  }

  async #serve(): Promise<void> {
    this.#app = await startApp({
      videos: this.videos,
      dispatcher: this.engine,
      ...this.#tools,
      keys: { find: () => Promise.resolve(this.#principal) },
      admission: new LimitedAdmission({
        limiter: this.#limiter,
        catalog: CATALOG,
        ...this.#tools,
        onUnknown: () => {},
      }),
    });
  }
}

/** A Redis, an edge on it, and a key for videos. */
export interface Stage {
  readonly world: RedisWorld;
  readonly edge: VideoEdge;
  readonly key: record.Principal;
}

/** A test with one edge and a key for videos. */
export function test(
  name: string,
  body: (stage: Stage) => Promise<void>,
): void {
  Deno.test(name, async () => {
    await using world = await startWorld();
    await using edge = await VideoEdge.start(world);
    await body({ world, edge, key: await world.addKey({ scopes: "video" }) });
  });
}

/** How many videos hold a slot of a key, and of its owner. */
export async function slotsHeld(
  world: RedisWorld,
  key: record.Principal,
): Promise<number[]> {
  const owners = record.ownerVideoLeaseKey(key.ownerId);
  const names = [record.videoLeaseKey(key), owners];
  return await Promise.all(
    names.map(async (name) => Number(await world.command("ZCARD", name))),
  );
}

/** Waits until no video holds a slot of a key. */
export async function slotsFreed(
  world: RedisWorld,
  key: record.Principal,
): Promise<void> {
  await waitFor(
    async () => (await slotsHeld(world, key)).every((slots) => slots === 0),
    { what: "free slots" },
  );
}

/** The seconds of video that a key was charged. */
export async function secondsCounted(
  world: RedisWorld,
  key: record.Principal,
): Promise<number> {
  return (await usageCounted(world, key)).videoSeconds;
}
