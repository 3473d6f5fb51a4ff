/** The routes of the public door, and what happens before and after each. */
import { type Context, Hono, type MiddlewareHandler } from "hono";
import type { Principal } from "@gateway/shared/keys/record";
import { ApiError } from "@gateway/shared/openai/error";
import {
  type ClientAddress,
  siteOf,
} from "@gateway/shared/process/client_address";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import { type Log, roundMs } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  chatCompletions,
  type ChatCompletionsDependencies,
} from "./chat/completions.ts";
import { getModel, listModels } from "./chat/models.ts";
import { logRun } from "./chat/run_log.ts";
import {
  errorResponse,
  internalError,
  jsonHeaders,
  jsonResponse,
  REQUEST_ID_HEADER,
} from "./http/responses.ts";
import type { Exchange } from "./http/server.ts";
import { allowHosts, cors } from "./http/sites.ts";
import { authenticate } from "./keys/authenticate.ts";
import type { KeyLookup } from "./keys/key_lookup.ts";
import type { EdgeMetrics, RouteName } from "./metrics.ts";

export interface AppDependencies extends ChatCompletionsDependencies {
  keys: Pick<KeyLookup, "remembered" | "find" | "check">;
  clientAddress: ClientAddress;
  /** Names this service goes by; empty: any. */
  allowedHosts: readonly string[];
  /** Origins of pages that may call it; empty: none. */
  corsOrigins: readonly string[];
  metrics: EdgeMetrics;
  log: Log;
}

/** What the middlewares know of a request. */
interface EdgeEnv {
  Variables: {
    /** 32 hex characters; callers see it behind `req_`. */
    requestId: string;
    /** When it arrived. */
    startedAtMs: number;
    /** Set once the caller is known. */
    principal: Principal;
    /** A chat request that was admitted is logged when its run is over. */
    hasRun: true | undefined;
  };
  Bindings: Exchange;
}

/** Both are the caller's words, and may be of any length. The query may hold secrets. */
const METHOD_CHARS_MAX = 20;
const PATH_CHARS_MAX = 200;

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
    d.log.info("request", {
      requestId: publicRequestId(c.var.requestId),
      keyId: c.var.principal?.keyId,
      method: shownMethod(c),
      path: shownPath(c),
      status: c.res.status,
      errorCode: c.error instanceof ApiError ? c.error.code : undefined,
      redis: redisReason(c.error),
      durationMs: roundMs(durationMs),
    });
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
  return async (c, next) => {
    const { headers } = c.req.raw;
    const address = () =>
      siteOf(
        d.clientAddress(
          c.env.connection.address,
          headers.get("x-forwarded-for"),
        ),
      );
    const credential = headers.get("authorization");
    c.set("principal", await authenticate(credential, address, d.keys));
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

/** Why Redis could not answer, where that is the error. */
function redisReason(error: Error | undefined): string | undefined {
  return error?.cause instanceof RedisUnavailableError
    ? error.cause.reason
    : undefined;
}

function shownMethod(c: Context<EdgeEnv>): string {
  return c.req.method.slice(0, METHOD_CHARS_MAX);
}

function shownPath(c: Context<EdgeEnv>): string {
  return c.req.path.slice(0, PATH_CHARS_MAX);
}

/** 204: what a path answers to. */
function optionsAllowed(c: Context<EdgeEnv>, methods: string): Response {
  const requestId = publicRequestId(c.var.requestId);
  const headers = { allow: methods, [REQUEST_ID_HEADER]: requestId };
  return new Response(null, { status: 204, headers });
}

/** 405 for a path that is there. */
function methodNotAllowed(c: Context<EdgeEnv>, methods: string): Response {
  const message = `Not allowed to ${shownMethod(c)} on ${shownPath(c)}. ` +
    `Allowed: ${methods}.`;
  const headers = { allow: methods };
  const error = new ApiError("method_not_allowed", message, { headers });
  return errorResponse(error, c.var.requestId);
}

/**
 * 404 in OpenAI's words, and where to look instead: most who come here have an SDK
 * that calls another API than chat completions, or a base URL without `/v1`.
 */
function notFound(c: Context<EdgeEnv>, hint: string): Response {
  const message = `Invalid URL (${shownMethod(c)} ${shownPath(c)}). ${hint}`;
  return errorResponse(new ApiError("not_found", message), c.var.requestId);
}
