/** The routes of the public door, and what happens before and after each. */
import {
  type ClientAddress,
  siteOf,
} from "@gateway/shared/process/client_address";
import { type Context, Hono, type MiddlewareHandler } from "hono";
import type { MonotonicNow } from "@gateway/shared/process/clock";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import type { Log } from "@gateway/shared/process/log";
import type { Catalog } from "@gateway/shared/models/catalog";
import { ApiError } from "@gateway/shared/openai/error";
import { allowHosts } from "./allow_hosts.ts";
import type { RefusedBodies } from "./chat/refused_bodies.ts";
import { authenticate } from "./keys/authenticate.ts";
import { chatCompletions, type Dispatcher } from "./chat/completions.ts";
import { cors } from "./cors.ts";
import type { Deadlines } from "@gateway/shared/process/deadlines";
import type { EdgeEnv } from "./edge_env.ts";
import type { KeyLookup } from "./keys/key_lookup.ts";
import type { Admission } from "./limits/admission.ts";
import type { EdgeMetrics, RouteName } from "./metrics.ts";
import type { LookupTurns } from "./keys/lookup_turns.ts";
import type { BodyBudget } from "./http/body_budget.ts";
import { getModel, listModels } from "./chat/models.ts";
import { logAnswer, logRun } from "./request_log.ts";
import {
  errorResponse,
  internalError,
  jsonHeaders,
  jsonResponse,
} from "./http/responses.ts";
import type { RunningRequests } from "./dispatch/running_requests.ts";
import { methodNotAllowed, notFound, optionsAllowed } from "./unserved.ts";

export interface AppDependencies {
  catalog: Catalog;
  keys: Pick<KeyLookup, "remembered" | "find" | "check">;
  admission: Admission;
  dispatcher: Dispatcher;
  running: RunningRequests;
  now: MonotonicNow;
  log: Log;
  bodyBytesMax: number;
  /** A stream without a first token is opened after this long; 0: never. */
  streamHeadMs: number;
  bodyBudget: BodyBudget;
  deadlines: Deadlines;
  /** Look-ups of unknown keys per client address. */
  lookupTurns: LookupTurns;
  refusedBodies: RefusedBodies;
  clientAddress: ClientAddress;
  /** Names this service goes by; empty: any. */
  allowedHosts: readonly string[];
  /** Origins of pages that may call it; empty: none. */
  corsOrigins: readonly string[];
  metrics: EdgeMetrics;
}

const CHAT = "/v1/chat/completions";
const MODELS = "/v1/models";
const MODEL = "/v1/models/:id{.+}";

/** What load balancers ask: it says that this process answers, and is not logged. */
const HEALTH = ["/health", "/healthz"];
/** What each known path answers to. `OPTIONS` needs no key: it tells nothing else. */
const METHODS: Record<string, string> = {
  [CHAT]: "POST, OPTIONS",
  [MODELS]: "GET, HEAD, OPTIONS",
  [MODEL]: "GET, HEAD, OPTIONS",
};

export function createApp(d: AppDependencies): Hono<EdgeEnv> {
  const app = new Hono<EdgeEnv>({ strict: false });

  for (const path of HEALTH) {
    app.get(path, () => healthy(newRequestId()));
  }
  app.use(nameRequest(d));
  if (d.corsOrigins.length > 0) app.use(cors(d.corsOrigins));
  if (d.allowedHosts.length > 0) app.use(allowHosts(d.allowedHosts));
  for (const [path, methods] of Object.entries(METHODS)) {
    app.options(path, (c) => optionsAllowed(c, methods));
  }
  app.use("/v1/*", authenticateFirst(d));

  app.post(CHAT, (c) => completeChat(c, d));
  app.get(MODELS, async (c) => {
    const models = await d.keys.check(c.var.principal, "models");
    return jsonResponse(listModels(d.catalog, models), c.var.requestId);
  });
  app.get(MODEL, async (c) => {
    const models = await d.keys.check(c.var.principal, "models");
    const model = getModel(d.catalog, models, c.req.param("id"));
    return jsonResponse(model, c.var.requestId);
  });

  for (const [path, methods] of Object.entries(METHODS)) {
    app.all(path, async (c) => {
      await d.keys.check(c.var.principal, null);
      return methodNotAllowed(c, methods);
    });
  }
  app.all("/v1/*", async (c) => {
    await d.keys.check(c.var.principal, null);
    return notFound(c, `This service has ${CHAT} and ${MODELS}.`);
  });
  app.notFound((c) => notFound(c, "All paths begin with /v1."));
  app.onError((error, c) => answerError(error, c, d.log));
  return app;
}

function healthy(requestId: string): Response {
  const headers = jsonHeaders(requestId);
  headers.set("content-type", "text/plain; charset=utf-8");
  return new Response("ok\n", { headers });
}

/** Counts the request, gives it its id and, unless it runs on, its log line. */
function nameRequest(d: AppDependencies): MiddlewareHandler<EdgeEnv> {
  return async (c, next) => {
    const startedAtMs = d.now();
    c.set("startedAtMs", startedAtMs);
    c.set("requestId", newRequestId());
    await next();
    const route = routeName(c.req.path);
    d.metrics.answered(route, c.res.status);
    if (c.var.hasRun === true) return;
    const durationMs = d.now() - startedAtMs;
    d.metrics.ended(route, durationMs);
    logAnswer(d.log, c, durationMs);
  };
}

/** Paths are what callers make of them, so metrics know only these. */
function routeName(path: string): RouteName {
  if (path === CHAT) return "chat";
  if (path === MODELS) return "models";
  return path.startsWith(`${MODELS}/`) ? "model" : "other";
}

/** Nobody learns anything of `/v1`, not even what exists there, without a key. */
function authenticateFirst(d: AppDependencies): MiddlewareHandler<EdgeEnv> {
  const parts = { lookup: d.keys, turns: d.lookupTurns };
  return async (c, next) => {
    const { headers } = c.req.raw;
    const clientAddress = () =>
      siteOf(
        d.clientAddress(
          c.env.connection.address,
          headers.get("x-forwarded-for"),
        ),
      );
    const found = authenticate(
      headers.get("authorization"),
      clientAddress,
      parts,
    );
    c.set("principal", found instanceof Promise ? await found : found);
    await next();
  };
}

function completeChat(
  c: Context<EdgeEnv>,
  d: AppDependencies,
): Promise<Response> {
  const { requestId, principal, startedAtMs } = c.var;
  return chatCompletions({
    requestId,
    principal,
    body: { headers: c.req.raw.headers, openBody: c.env.openBody },
    connection: c.env.connection,
    onStarted: () => c.set("hasRun", true),
    onEnded: (request, outcome) => {
      const durationMs = d.now() - startedAtMs;
      const run = { requestId, principal, request, outcome, durationMs };
      d.metrics.ran(run);
      logRun(d.log, run);
    },
  }, d);
}

function answerError(
  error: unknown,
  c: Context<EdgeEnv>,
  log: Log,
): Response {
  const { requestId } = c.var;
  if (error instanceof ApiError) return errorResponse(error, requestId);
  log.error("request_fault", {
    requestId: publicRequestId(requestId),
    error,
  });
  return errorResponse(internalError(error), requestId);
}
