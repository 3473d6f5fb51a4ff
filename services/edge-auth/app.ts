/** The routes of the public API, and what happens before and after each. */
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Principal } from "@gateway/shared/keys/record";
import { ApiError, internalError } from "@gateway/shared/openai/error";
import {
  type ClientAddress,
  siteOf,
} from "@gateway/shared/process/client_address";
import type { WallNow } from "@gateway/shared/process/clock";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import { roundMs } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import {
  FORWARD_NAMES,
  forwardEndpoint,
} from "@gateway/shared/forward/endpoints";
import { CHAT_ENDPOINT } from "./chat/request.ts";
import { credentialOf, isAnthropic } from "./keys/credential.ts";
import { forwardTo } from "./forward/endpoint.ts";
import { otherPathsOf } from "@gateway/shared/forward/other_paths";
import { forwardToPath } from "./forward/other_path.ts";
import { noStoredResponse, refuseWebSocket } from "./forward/no_responses.ts";
import { type ModelsDependencies, sendModels } from "./requests/models.ts";
import { usageEndpointOf } from "./requests/usage_endpoint.ts";
import {
  allowOrigins,
  BYTES_HEADERS,
  JSON_HEADERS,
  sendBytes,
  sendError,
} from "./http/responses.ts";
import type { RefusalLog } from "./http/refusal_log.ts";
import { isForm } from "./http/form_parser.ts";
import type { Exchange } from "./http/exchange.ts";
import { authenticate, type KeyLookup } from "./keys/authenticate.ts";
import {
  IMAGE,
  IMAGE_EDIT,
  IMAGE_EDIT_UPLOAD,
  SPEECH,
  TRANSCRIPTION,
  TRANSLATION,
} from "./media/endpoints.ts";
import type { EdgeMetrics } from "./metrics.ts";
import {
  ANSWERED,
  type AuthenticatedCall,
  type Call,
  type CallEnd,
  type CallHandler,
  refused,
} from "./requests/call.ts";
import type { Endpoint, UploadEndpoint } from "./requests/endpoint.ts";
import { runRequest } from "./requests/run_request.ts";
import { runUpload } from "./requests/run_upload.ts";
import { endByHeader } from "./requests/timeout_header.ts";
import { type VideoDependencies, VIDEOS } from "./videos/handlers.ts";

/** What the API needs. */
export interface AppDependencies
  extends VideoDependencies, Pick<ModelsDependencies, "isRun"> {
  keys: Pick<KeyLookup, "find">;
  clientAddress: ClientAddress;
  /** Origins of web pages that may call it; if empty, none may. */
  corsOrigins: readonly string[];
  /**
   * Whether this edge is about to stop; each connection then closes after its next
   * response.
   */
  isDraining: () => boolean;
  wallNow: WallNow;
  metrics: EdgeMetrics;
  refusals: Pick<RefusalLog, "add">;
}

type Handler = CallHandler<AppDependencies>;
type Handlers = { readonly [method: string]: Handler };

const PATH_CHARS_MAX = 200;
/** Liveness checks of load balancers. Not logged. */
const HEALTH = ["/health", "/healthz"];
const OK = new TextEncoder().encode("ok\n");
const TEXT = "text/plain; charset=utf-8";
const NO_CONTENT = 204;

const json = <R extends JobRequest>(endpoint: Endpoint<R>): Handlers => ({
  POST: (call, deps) => runRequest(call, endpoint, deps),
});
const form = <R extends JobRequest>(
  endpoint: UploadEndpoint<R>,
): Handlers => ({ POST: (call, deps) => runUpload(call, endpoint, deps) });
const read = (handler: Handler): Handlers => ({ GET: handler, HEAD: handler });

const editImage: Handler = (call, deps) =>
  isForm(call.exchange.headers)
    ? runUpload(call, IMAGE_EDIT_UPLOAD, deps)
    : runRequest(call, IMAGE_EDIT, deps);

/** A path of the API, and who handles its methods. */
export interface Route {
  /** Its name in metrics. */
  readonly name: string;
  /** A pattern where part of the path varies: its first group. */
  readonly path: string | RegExp;
  readonly handlers: Handlers;
  /** Its methods, for the header `Allow`. `OPTIONS` needs no key: it reveals these. */
  readonly allow: string;
}

function routeOf(
  name: string,
  path: string | RegExp,
  handlers: Handlers,
): Route {
  const allow = [...Object.keys(handlers), "OPTIONS"].join(", ");
  return { name, path, handlers, allow };
}

/** The paths that need a key. */
export const ROUTES: readonly Route[] = [
  routeOf("chat", "/v1/chat/completions", json(CHAT_ENDPOINT)),
  ...FORWARD_NAMES.map((name) =>
    routeOf(name, forwardEndpoint(name).path, {
      POST: (call, deps) => runRequest(call, forwardTo(name, call, deps), deps),
      ...name === "responses" && { GET: refuseWebSocket },
    })
  ),
  routeOf("response", /^\/v1\/responses\/([^/]+)(?:\/.*)?$/, {
    ...read(noStoredResponse),
    POST: noStoredResponse,
    DELETE: noStoredResponse,
  }),
  routeOf("speech", "/v1/audio/speech", json(SPEECH)),
  routeOf("image", "/v1/images/generations", json(IMAGE)),
  routeOf("image_edit", "/v1/images/edits", { POST: editImage }),
  routeOf("transcription", "/v1/audio/transcriptions", form(TRANSCRIPTION)),
  routeOf("translation", "/v1/audio/translations", form(TRANSLATION)),
  routeOf("video", "/v1/videos", {
    ...read(VIDEOS.list),
    POST: VIDEOS.create,
  }),
  routeOf("video_job", /^\/v1\/videos\/([^/]+)$/, {
    ...read(VIDEOS.retrieve),
    DELETE: VIDEOS.remove,
  }),
  routeOf("video_content", /^\/v1\/videos\/([^/]+)\/content$/, {
    GET: VIDEOS.sendContent,
  }),
  routeOf("video_remix", /^\/v1\/videos\/([^/]+)\/remix$/, {
    POST: VIDEOS.remix,
  }),
  routeOf("models", "/v1/models", read(sendModels)),
  routeOf("model", /^\/v1\/models\/(.+)$/s, read(sendModels)),
];
/**
 * The description of the API. It needs no key: it is the same everywhere, without a
 * secret.
 */
const REFERENCE = routeOf("reference", "/openapi.json", read(sendReference));
const REFERENCE_BYTES = new TextEncoder().encode(JSON.stringify(document));
const OTHER: Route = { name: "other", path: "", handlers: {}, allow: "" };
const BY_PATH = new Map(
  [...ROUTES, REFERENCE].map((each) => [each.path, each]),
);

/** The route of a path, and its part that varies. */
interface Match {
  readonly route: Route;
  readonly id: string;
}

/** Returns the routes of paths that only some model servers have, as these are now. */
function otherRoutesOf({ catalog }: AppDependencies) {
  let [routes, revision] = [new Map<string, Route>(), -1];
  const post = (path: string): Handler => (call, deps) =>
    runRequest(call, forwardToPath(path, call, deps), deps);
  return () => {
    if (revision === catalog.revision) return routes;
    const paths = [...otherPathsOf(catalog)];
    const all = paths.map((path) => routeOf(path, path, { POST: post(path) }));
    routes = new Map(all.map((route) => [route.name, route]));
    revision = catalog.revision;
    return routes;
  };
}

function find(path: string, others: ReadonlyMap<string, Route>): Match {
  const whole = BY_PATH.get(path) ?? others.get(path);
  if (whole !== undefined) return { route: whole, id: "" };
  for (const route of ROUTES) {
    if (typeof route.path === "string") continue;
    const id = route.path.exec(path)?.[1];
    if (id !== undefined) return { route, id };
  }
  return { route: OTHER, id: "" };
}

/** Handles every request of the public API. The result never rejects. */
export function createApp(
  deps: AppDependencies,
): (exchange: Exchange) => Promise<void> {
  const others = otherRoutesOf(deps);
  return async (exchange) => {
    const { method, path, response } = exchange;
    const { route, id } = find(path, others());
    const call: Call = {
      exchange,
      requestId: newRequestId(),
      id,
      endpoint: usageEndpointOf(route.name),
      clientAddress: deps.clientAddress(
        exchange.socket.remoteAddress ?? "",
        exchange.headers["x-forwarded-for"]?.toString() ?? null,
      ),
      startedAtMs: deps.now(),
    };
    const requestId = publicRequestId(call.requestId);
    response.fixedHeaders["x-request-id"] = requestId;
    if (isAnthropic(exchange)) {
      response.envelope = "anthropic";
      // Where Anthropic's SDKs look for it.
      response.fixedHeaders["request-id"] = requestId;
    }
    if (deps.isDraining()) response.fixedHeaders.connection = "close";
    if (HEALTH.includes(path) && (method === "GET" || method === "HEAD")) {
      const headers = { ...BYTES_HEADERS, "content-type": TEXT };
      return sendBytes(response, OK, { headers });
    }
    exchange.onClose.push(() => {
      const durationMs = deps.now() - call.startedAtMs;
      deps.metrics.answered(route.name, response.statusCode, durationMs);
    });
    allowOrigins(deps.corsOrigins, exchange);
    if (method === "OPTIONS" && route !== OTHER) {
      response.sendHead(NO_CONTENT, { allow: route.allow }).end();
      return finish(call, null, deps);
    }
    await handle(call, route, deps);
  };
}

/** Identifies the caller, then has the request handled. */
async function handle(
  call: Call,
  route: Route,
  deps: AppDependencies,
): Promise<void> {
  let authenticated: AuthenticatedCall | null = null;
  let end: CallEnd;
  try {
    if (isPublic(call, route)) end = answerPublic(call, route);
    else {
      const principal = await identify(call, deps);
      authenticated = { ...call, principal, endsByMs: Infinity };
      const endsByMs = await endByHeader(authenticated, deps);
      end = await answer({ ...authenticated, endsByMs }, route, deps);
    }
  } catch (error) {
    end = refused(error);
  }
  if (end.type === "running") return;
  const failure = end.type === "refused"
    ? { model: end.model, error: sendFailure(call, end.error, deps) }
    : null;
  finish(authenticated ?? call, failure, deps);
}

/** Sends the answer of an error, or cuts one that has begun. Returns that error. */
function sendFailure(
  { exchange: { response }, requestId }: Call,
  error: unknown,
  { log }: AppDependencies,
): ApiError {
  const isFault = !(error instanceof ApiError);
  if (isFault) {
    const line = { requestId: publicRequestId(requestId), error };
    log.error("request_fault", line);
  }
  const failure = isFault ? internalError(error) : error;
  if (response.headersSent) response.destroy();
  else sendError(response, failure);
  return failure;
}

/** Whether it needs no key. */
function isPublic({ exchange: { path } }: Call, route: Route): boolean {
  const isBelow = path === "/v1" || path.startsWith("/v1/");
  return route === REFERENCE || (route === OTHER && !isBelow);
}

/**
 * Finds whose key it is. A caller without a key cannot even find out which paths exist
 * under `/v1`.
 */
function identify(call: Call, { keys }: AppDependencies): Promise<Principal> {
  const address = () => siteOf(call.clientAddress);
  return authenticate(credentialOf(call.exchange), address, keys);
}

async function answer(
  call: AuthenticatedCall,
  route: Route,
  deps: AppDependencies,
): Promise<CallEnd> {
  const { exchange } = call;
  const handler = route.handlers[exchange.method];
  if (handler !== undefined) return await handler(call, deps);
  await deps.admission.modelsOf(call.principal, null);
  if (route !== OTHER) throw notAllowed(exchange, route);
  const paths = ROUTES.flatMap(({ path }) =>
    typeof path === "string" ? [path] : []
  );
  const list = new Intl.ListFormat("en").format(paths);
  throw notFound(exchange, `This service has ${list}.`);
}

/** Answers what needs no key. Throws the `ApiError` of a path that does not exist. */
function answerPublic(call: Call, route: Route): CallEnd {
  const { exchange } = call;
  if (route !== REFERENCE) {
    throw notFound(exchange, "All paths begin with /v1.");
  }
  const isAllowed = Object.hasOwn(route.handlers, exchange.method);
  if (!isAllowed) throw notAllowed(exchange, route);
  return sendReference(call);
}

function sendReference({ exchange: { response } }: Call): CallEnd {
  // Browsers see a new version after five minutes.
  const caching = { "cache-control": "public, max-age=300" };
  const headers = { ...JSON_HEADERS, ...caching };
  sendBytes(response, REFERENCE_BYTES, { headers });
  return ANSWERED;
}

/** Why a request was refused, and for which model, if that is known. */
interface Refusal {
  readonly error: ApiError;
  readonly model: string | null;
}

/** Counts a request and logs it. For one that has run, its run does that. */
function finish(
  call: Call | AuthenticatedCall,
  failure: Refusal | null,
  deps: AppDependencies,
): void {
  const { exchange, requestId } = call;
  const principal = "principal" in call ? call.principal : undefined;
  if (failure !== null && principal !== undefined) {
    const { error, model } = failure;
    const { endpoint } = call;
    const how = "refused";
    deps.failedRequests.add(principal, {
      requestId,
      model,
      endpoint,
      error,
      how,
    });
  }
  const durationMs = deps.now() - call.startedAtMs;
  const { statusCode: status } = exchange.response;
  if (status < 400 && !deps.log.isSampled(requestId)) return;
  const { cause } = failure?.error ?? {};
  const line = {
    requestId: publicRequestId(requestId),
    keyId: principal?.keyId,
    ownerId: principal?.ownerId,
    clientAddress: call.clientAddress,
    method: exchange.method,
    path: shownPath(exchange),
    status,
    errorCode: failure?.error.code,
    redis: cause instanceof RedisUnavailableError ? cause.reason : undefined,
    durationMs: roundMs(durationMs),
  };
  if (failure !== null && status < 500) deps.refusals.add(line);
  else deps.log.info("request", line);
}

const shownPath = ({ path }: Exchange) => path.slice(0, PATH_CHARS_MAX);

/**
 * 404 in OpenAI's words. The usual cause is another API of an SDK, or a base URL
 * without `/v1`.
 */
function notFound(exchange: Exchange, hint: string): ApiError {
  const url = `${exchange.method} ${shownPath(exchange)}`;
  return new ApiError("not_found", `Invalid URL (${url}). ${hint}`);
}

function notAllowed(exchange: Exchange, { allow }: Route): ApiError {
  const what = `Not allowed to ${exchange.method} on ${shownPath(exchange)}.`;
  const message = `${what} Allowed: ${allow}.`;
  return new ApiError("method_not_allowed", message, { headers: { allow } });
}
