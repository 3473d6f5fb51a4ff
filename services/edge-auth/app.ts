/** The routes of the public API, and what happens before and after each. */
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import type { JobRequest } from "@gateway/shared/bus/job";
import type { Principal } from "@gateway/shared/keys/record";
import type { ModelObject } from "@gateway/shared/openai/completion";
import { ApiError, internalError } from "@gateway/shared/openai/error";
import {
  type ClientAddress,
  siteOf,
} from "@gateway/shared/process/client_address";
import { newRequestId, publicRequestId } from "@gateway/shared/process/ids";
import { roundMs } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { CHAT_ENDPOINT } from "./chat/request.ts";
import {
  allowOrigins,
  BYTES_HEADERS,
  JSON_HEADERS,
  sendBytes,
  sendError,
  sendJson,
} from "./http/responses.ts";
import type { RefusalLog } from "./http/refusal_log.ts";
import { isForm } from "./http/read_form.ts";
import type { Exchange } from "./http/server.ts";
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
import { modelNotFound } from "./requests/parse_request.ts";
import {
  type CallHandler,
  type Endpoint,
  type RunCall,
  runRequest,
} from "./requests/run_request.ts";
import { runUpload, type UploadEndpoint } from "./requests/run_upload.ts";
import { type VideoDependencies, VIDEOS } from "./videos/handlers.ts";

export interface AppDependencies extends VideoDependencies {
  keys: Pick<KeyLookup, "find">;
  clientAddress: ClientAddress;
  /** Origins of web pages that may call it; if empty, none may. */
  corsOrigins: readonly string[];
  /**
   * Whether this edge is about to stop; each connection then closes after its next
   * response.
   */
  isDraining: () => boolean;
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

const json = <R extends JobRequest>(of: Endpoint<R>): Handlers => ({
  POST: (call, deps) => runRequest(call, of, deps),
});
const form = <R extends JobRequest>(
  of: UploadEndpoint<R>,
): Handlers => ({ POST: (call, deps) => runUpload(call, of, deps) });
const read = (handler: Handler): Handlers => ({ GET: handler, HEAD: handler });

const editImage: Handler = (call, deps) =>
  isForm(call.exchange.headers)
    ? runUpload(call, IMAGE_EDIT_UPLOAD, deps)
    : runRequest(call, IMAGE_EDIT, deps);

/** By their names in metrics. Those with a part that varies have a pattern. */
export const ROUTES = ([
  ["chat", "/v1/chat/completions", json(CHAT_ENDPOINT)],
  ["speech", "/v1/audio/speech", json(SPEECH)],
  ["image", "/v1/images/generations", json(IMAGE)],
  ["image_edit", "/v1/images/edits", { POST: editImage }],
  ["transcription", "/v1/audio/transcriptions", form(TRANSCRIPTION)],
  ["translation", "/v1/audio/translations", form(TRANSLATION)],
  ["video", "/v1/videos", { ...read(VIDEOS.list), POST: VIDEOS.create }],
  ["video_job", /^\/v1\/videos\/([^/]+)$/, {
    ...read(VIDEOS.retrieve),
    DELETE: VIDEOS.remove,
  }],
  ["video_content", /^\/v1\/videos\/([^/]+)\/content$/, {
    GET: VIDEOS.sendContent,
  }],
  ["video_remix", /^\/v1\/videos\/([^/]+)\/remix$/, { POST: VIDEOS.remix }],
  ["models", "/v1/models", read(sendModels)],
  ["model", /^\/v1\/models\/(.+)$/s, read(sendModels)],
] satisfies [string, string | RegExp, Handlers][]).map(routeOf);
/**
 * The description of the API. It needs no key: it is the same everywhere, without a
 * secret.
 */
const REFERENCE = routeOf(["reference", "/openapi.json", read(sendReference)]);
const REFERENCE_BYTES = new TextEncoder().encode(JSON.stringify(document));
const OTHER: Route = { name: "other", path: "", handlers: {}, allow: "" };
const BY_PATH = new Map(
  [...ROUTES, REFERENCE].map((each) => [each.path, each]),
);

type Route = ReturnType<typeof routeOf>;
function routeOf(
  [name, path, handlers]: readonly [string, string | RegExp, Handlers],
) {
  // `OPTIONS` needs no key: it reveals only these.
  const allow = [...Object.keys(handlers), "OPTIONS"].join(", ");
  return { name, path, handlers, allow };
}

/** A request that may not have a key. */
interface Call extends Omit<RunCall, "principal"> {
  readonly route: Route;
  principal?: Principal;
}

function find(path: string): Pick<Call, "route" | "id"> {
  const whole = BY_PATH.get(path);
  if (whole !== undefined) return { route: whole, id: "" };
  for (const route of ROUTES) {
    if (typeof route.path === "string") continue;
    const id = route.path.exec(path)?.[1];
    if (id !== undefined) return { route, id };
  }
  return { route: OTHER, id: "" };
}

export function createApp(deps: AppDependencies) {
  return async (exchange: Exchange): Promise<void> => {
    const { method, path, response } = exchange;
    const call: Call = {
      exchange,
      requestId: newRequestId(),
      clientAddress: deps.clientAddress(
        exchange.socket.remoteAddress ?? "",
        exchange.headers["x-forwarded-for"]?.toString() ?? null,
      ),
      startedAtMs: deps.now(),
      ...find(path),
      model: null,
      hasRun: false,
    };
    const requestId = publicRequestId(call.requestId);
    response.fixedHeaders["x-request-id"] = requestId;
    if (deps.isDraining()) response.fixedHeaders.connection = "close";
    if (HEALTH.includes(path) && (method === "GET" || method === "HEAD")) {
      const headers = { ...BYTES_HEADERS, "content-type": TEXT };
      return sendBytes(response, OK, { headers });
    }
    exchange.onClose.push(() => {
      const durationMs = deps.now() - call.startedAtMs;
      deps.metrics.answered(call.route.name, response.statusCode, durationMs);
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
    if (!call.hasRun) finish(call, failure, deps);
  };
}

async function answer(call: Call, deps: AppDependencies): Promise<void> {
  const { exchange, route } = call;
  const { method, path, headers, response } = exchange;
  allowOrigins(deps.corsOrigins, exchange);
  if (method === "OPTIONS" && route !== OTHER) {
    return void response.sendHead(NO_CONTENT, { allow: route.allow }).end();
  }
  const handler = route.handlers[method];
  if (route === REFERENCE) {
    if (handler === undefined) throw notAllowed(exchange, route);
    return sendReference(call);
  }
  if (path !== "/v1" && !path.startsWith("/v1/")) {
    throw notFound(exchange, "All paths begin with /v1.");
  }
  // A caller without a key cannot even find out which paths exist under `/v1`.
  const address = () => siteOf(call.clientAddress);
  const credential = headers.authorization ?? "";
  const principal = await authenticate(credential, address, deps.keys);
  const known = Object.assign(call, { principal });
  if (handler !== undefined) return await handler(known, deps);
  await deps.admission.modelsOf(principal, null);
  if (route !== OTHER) throw notAllowed(exchange, route);
  const paths = ROUTES.flatMap(({ path }) =>
    typeof path === "string" ? [path] : []
  );
  const list = new Intl.ListFormat("en").format(paths);
  throw notFound(exchange, `This service has ${list}.`);
}

function sendReference({ exchange: { response } }: Pick<Call, "exchange">) {
  // Browsers see a new version after five minutes.
  const caching = { "cache-control": "public, max-age=300" };
  const headers = { ...JSON_HEADERS, ...caching };
  sendBytes(response, REFERENCE_BYTES, { headers });
}

async function sendModels(
  { id, principal, exchange: { response } }: RunCall,
  { admission, catalog }: AppDependencies,
): Promise<void> {
  const allowed = await admission.modelsOf(principal, "models");
  const data = [...catalog.values()]
    .filter(({ id }) => allowed.length === 0 || allowed.includes(id))
    .map(({ id, created, owned_by }): ModelObject => (
      { id, object: "model", created, owned_by }
    ));
  if (id === "") return sendJson(response, { object: "list", data });
  const model = data.find((model) => model.id === id);
  // Also for a model that the key may not use.
  if (model === undefined) throw modelNotFound(id);
  sendJson(response, model);
}

/** Counts a request and logs it. For one that has run, its run does that. */
function finish(
  { exchange, requestId, principal, ...call }: Call,
  error: ApiError | null,
  deps: AppDependencies,
): void {
  if (error !== null && principal !== undefined) {
    const how = "refused";
    deps.failedRequests.add(principal, { ...call, requestId, error, how });
  }
  const durationMs = deps.now() - call.startedAtMs;
  const { statusCode: status } = exchange.response;
  if (status < 400 && !deps.log.isSampled(requestId)) return;
  const { cause } = error ?? {};
  const line = {
    requestId: publicRequestId(requestId),
    keyId: principal?.keyId,
    ownerId: principal?.ownerId,
    clientAddress: call.clientAddress,
    method: exchange.method,
    path: shownPath(exchange),
    status,
    errorCode: error?.code,
    redis: cause instanceof RedisUnavailableError ? cause.reason : undefined,
    durationMs: roundMs(durationMs),
  };
  if (error !== null && status < 500) deps.refusals.add(line);
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
