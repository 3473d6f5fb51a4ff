/** Wires the public door: Redis, bus, dispatcher, HTTP. */
import {
  type BusLink,
  connectBus,
  isNoResponders,
} from "@gateway/shared/bus/link";
import {
  edgeBeatSubject,
  edgeStreamWildcard,
  keyChangedSubject,
  workerBeatWildcard,
} from "@gateway/shared/bus/subjects";
import { monotonicNow } from "@gateway/shared/clock";
import { newInstanceId } from "@gateway/shared/ids";
import { DISPATCH_LIMITS } from "@gateway/shared/limits";
import type { Log } from "@gateway/shared/log";
import { ApiError } from "@gateway/shared/openai/error";
import { serveOps } from "@gateway/shared/ops_server";
import { createRedisLink } from "@gateway/shared/redis/link";
import { serve } from "@gateway/shared/serve";
import { type RunningService, runService } from "@gateway/shared/service";
import { createApp } from "./app.ts";
import { ChatDispatcher, DISPATCH_TICK_MS } from "./chat_dispatcher.ts";
import { type EdgeConfig, readConfig } from "./config.ts";
import { createGate } from "./redis_gate.ts";
import { errorResponse, internalError } from "./responses.ts";
import { RunningRequests } from "./running_requests.ts";
import { stopKeyRequests } from "./stop_key_requests.ts";
import { WorkerTable } from "./worker_table.ts";

/** After the grace time, streams have this long to end with an error frame. */
const LAST_WORD_MS = 1_000;
const EMPTY = new Uint8Array(0);

await runService({ name: "edge-auth", readConfig, start });
