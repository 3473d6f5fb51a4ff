/** The routes of the public API, and what happens before and after each. */
import type { Principal } from "@gateway/shared/keys/record";
import type { Catalog } from "@gateway/shared/models/catalog";
import type { ModelObject } from "@gateway/shared/openai/completion";
import { ApiError } from "@gateway/shared/openai/error";
import {
  type ClientAddress,
  siteOf,
} from "@gateway/shared/process/client_address";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import { roundMs } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  type ChatCall,
  chatCompletions,
  type ChatCompletionsDependencies,
} from "./chat/completions.ts";
import { modelNotFound } from "./chat/request.ts";
import {
  allowOrigins,
  internalError,
  JSON_HEADERS,
  REQUEST_ID_HEADER,
  sendBytes,
  sendError,
  sendJson,
} from "./http/responses.ts";
import type { Exchange } from "./http/server.ts";
import { authenticate, type KeyLookup } from "./keys/authenticate.ts";
import type { EdgeMetrics, RouteName } from "./metrics.ts";

export interface AppDependencies extends ChatCompletionsDependencies {
  keys: Pick<KeyLookup, "find">;
  clientAddress: ClientAddress;
  /** Origins of web pages that may call it; if empty, none may. */
  corsOrigins: readonly string[];
  /** Whether this edge is about to stop; each connection then closes after its next response. */
  isDraining: () => boolean;
  metrics: EdgeMetrics;
}

/** Characters of a request path that messages and the log show. */
const PATH_CHARS_MAX = 200;

const CHAT = "/v1/chat/completions";
const MODELS = "/v1/models";
/** Liveness checks of load balancers. Not logged. */
const HEALTH = ["/health", "/healthz"];

/** The methods of each route. `OPTIONS` needs no key: it reveals only these. */
export const METHODS: Readonly<Record<RouteName, readonly string[]>> = {
  chat: ["POST", "OPTIONS"],
  models: ["GET", "HEAD", "OPTIONS"],
  model: ["GET", "HEAD", "OPTIONS"],
  other: [],
};

function routeOf(path: string): RouteName {
  if (path === CHAT) return "chat";
  if (path === MODELS) return "models";
  return path.startsWith(`${MODELS}/`) ? "model" : "other";
}

/** A request that is being handled. */
interface Call extends ChatCall {
  readonly route: RouteName;
  /** Set once its key is known. */
  principal?: Principal;
}

/** Returns the handler of all requests, which never rejects. */
export function createApp(
  deps: AppDependencies,
): (exchange: Exchange) => Promise<void> {
  return async (exchange) => {
    const { method, path, response } = exchange;
    const call: Call = {
      exchange,
      requestId: newRequestId(),
      startedAtMs: deps.now(),
      route: routeOf(path),
      hasRun: false,
    };
    const requestId = publicRequestId(call.requestId);
    response.setHeader(REQUEST_ID_HEADER, requestId);
    if (deps.isDraining()) response.setHeader("connection", "close");
    if (HEALTH.includes(path) && (method === "GET" || method === "HEAD")) {
      const type = "text/plain; charset=utf-8";
      const headers = { ...JSON_HEADERS, "content-type": type };
      return sendBytes(response, new TextEncoder().encode("ok\n"), { headers });
    }
    response.once("close", () => {
      deps.metrics.answered(call.route, response.statusCode);
    });
    let failure: ApiError | null = null;
    try {
      await answer(call, deps);
    } catch (error) {
      const isFault = !(error instanceof ApiError);
      if (isFault) deps.log.error("request_fault", { requestId, error });
      failure = isFault ? internalError(error) : error;
      if (response.headersSent) response.destroy();
      else sendError(response, failure);
    }
    finish(call, failure, deps);
  };
}

async function answer(call: Call, deps: AppDependencies): Promise<void> {
  const { exchange, route } = call;
  const { method, path, headers, response } = exchange;
  allowOrigins(deps.corsOrigins, exchange);
  const methods = METHODS[route];
  if (method === "OPTIONS" && methods.length > 0) {
    response.writeHead(NO_CONTENT, { allow: methods.join(", ") }).end();
    return;
  }
  if (path !== "/v1" && !path.startsWith("/v1/")) {
    throw notFound(exchange, "All paths begin with /v1.");
  }
  // A caller without a key cannot even find out which paths exist under `/v1`.
  const address = () => {
    const forwarded = headers.get("x-forwarded-for") ?? null;
    const { remoteAddress = "" } = exchange.socket;
    return siteOf(deps.clientAddress(remoteAddress, forwarded));
  };
  const credential = headers.get("authorization") ?? "";
  const principal = await authenticate(credential, address, deps.keys);
  call.principal = principal;
  if (route === "chat" && method === "POST") {
    return await chatCompletions(call, principal, deps);
  }
  const isRead = route !== "chat" && methods.includes(method);
  const scope = isRead ? "models" : null;
  const models = await deps.admission.modelsOf(principal, scope);
  if (isRead) return answerModels(call, models, deps.catalog);
  if (route === "other") {
    throw notFound(exchange, `This service has ${CHAT} and ${MODELS}.`);
  }
  const allow = methods.join(", ");
  const what = `Not allowed to ${method} on ${shownPath(exchange)}.`;
  const message = `${what} Allowed: ${allow}.`;
  throw new ApiError("method_not_allowed", message, { headers: { allow } });
}

const NO_CONTENT = 204;

/** Answers with the models in `allowed`, or one of them; an empty list allows all. */
function answerModels(
  { route, exchange: { path, response } }: Call,
  allowed: readonly string[],
  catalog: Catalog,
): void {
  const data = [...catalog.values()]
    .filter(({ id }) => allowed.length === 0 || allowed.includes(id))
    .map(({ id, created, owned_by }): ModelObject => (
      { id, object: "model", created, owned_by }
    ));
  if (route === "models") return sendJson(response, { object: "list", data });
  const id = path.slice(MODELS.length + 1);
  const model = data.find((model) => model.id === id);
  // Also for a model that the key may not use.
  if (model === undefined) throw modelNotFound(id);
  sendJson(response, model);
}

/** Counts the request and logs it, unless its run does that at its end. */
function finish(
  { exchange, requestId, route, principal, ...call }: Call,
  error: ApiError | null,
  deps: AppDependencies,
): void {
  if (call.hasRun) return;
  const durationMs = deps.now() - call.startedAtMs;
  deps.metrics.ended(route, durationMs);
  deps.log.info("request", {
    requestId: publicRequestId(requestId),
    keyId: principal?.keyId,
    method: exchange.method,
    path: shownPath(exchange),
    status: exchange.response.statusCode,
    errorCode: error?.code,
    redis: error?.cause instanceof RedisUnavailableError
      ? error.cause.reason
      : undefined,
    durationMs: roundMs(durationMs),
  });
}

function shownPath({ path }: Exchange): string {
  return path.slice(0, PATH_CHARS_MAX);
}

/**
 * 404 in OpenAI's words, with a hint: the usual cause is an SDK that calls an API
 * other than chat completions, or a base URL without `/v1`.
 */
function notFound(exchange: Exchange, hint: string): ApiError {
  const url = `${exchange.method} ${shownPath(exchange)}`;
  return new ApiError("not_found", `Invalid URL (${url}). ${hint}`);
}
