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
import { CHAT_ENDPOINT } from "./chat/request.ts";
import {
  IMAGE_EDIT_ENDPOINT,
  IMAGE_EDIT_UPLOAD,
  IMAGE_ENDPOINT,
  SPEECH_ENDPOINT,
  TRANSCRIPTION_ENDPOINT,
  TRANSLATION_ENDPOINT,
} from "./media/endpoints.ts";
import {
  createVideo,
  deleteVideo,
  listVideos,
  remixVideo,
  retrieveVideo,
  sendVideo,
  type VideoDependencies,
} from "./videos/handlers.ts";
import { runUpload } from "./requests/run_upload.ts";
import { type RunCall, runRequest } from "./requests/run_request.ts";
import { modelNotFound } from "./requests/parse_request.ts";
import {
  allowOrigins,
  internalError,
  JSON_HEADERS,
  REQUEST_ID_HEADER,
  sendBytes,
  sendError,
  sendJson,
} from "./http/responses.ts";
import type { RefusalLog } from "./http/refusal_log.ts";
import { isForm } from "./http/read_form.ts";
import { sendReference } from "./http/reference.ts";
import type { Exchange } from "./http/server.ts";
import { authenticate, type KeyLookup } from "./keys/authenticate.ts";
import type { EdgeMetrics, RouteName } from "./metrics.ts";

export interface AppDependencies extends VideoDependencies {
  keys: Pick<KeyLookup, "find">;
  clientAddress: ClientAddress;
  /** Origins of web pages that may call it; if empty, none may. */
  corsOrigins: readonly string[];
  /** Whether this edge is about to stop; each connection then closes after its next response. */
  isDraining: () => boolean;
  metrics: EdgeMetrics;
  refusals: Pick<RefusalLog, "add">;
}

const PATH_CHARS_MAX = 200;

const MODELS = "/v1/models";
const VIDEOS = "/v1/videos";
const REFERENCE = "/openapi.json";
/** The routes of paths that are known as a whole. */
const ROUTES: { readonly [path: string]: RouteName } = {
  "/v1/chat/completions": "chat",
  "/v1/audio/speech": "speech",
  "/v1/images/generations": "image",
  "/v1/images/edits": "image_edit",
  "/v1/audio/transcriptions": "transcription",
  "/v1/audio/translations": "translation",
  [VIDEOS]: "video",
  [MODELS]: "models",
  [REFERENCE]: "reference",
};
/** Liveness checks of load balancers. Not logged. */
const HEALTH = ["/health", "/healthz"];

/** The methods of each route. `OPTIONS` needs no key: it reveals only these. */
export const METHODS: Readonly<Record<RouteName, readonly string[]>> = {
  chat: ["POST", "OPTIONS"],
  speech: ["POST", "OPTIONS"],
  image: ["POST", "OPTIONS"],
  image_edit: ["POST", "OPTIONS"],
  transcription: ["POST", "OPTIONS"],
  translation: ["POST", "OPTIONS"],
  video: ["GET", "HEAD", "POST", "OPTIONS"],
  video_job: ["GET", "HEAD", "DELETE", "OPTIONS"],
  video_content: ["GET", "OPTIONS"],
  video_remix: ["POST", "OPTIONS"],
  models: ["GET", "HEAD", "OPTIONS"],
  model: ["GET", "HEAD", "OPTIONS"],
  reference: ["GET", "HEAD", "OPTIONS"],
  other: [],
};

function routeOf(path: string): RouteName {
  const route = Object.hasOwn(ROUTES, path) ? ROUTES[path] : undefined;
  if (route !== undefined) return route;
  if (path.startsWith(`${MODELS}/`)) return "model";
  const [, id, part = ""] = VIDEO_PATH.exec(path) ?? [];
  return id === undefined ? "other" : VIDEO_ROUTES[part] ?? "other";
}

/** A video, or something of it. */
const VIDEO_PATH = /^\/v1\/videos\/([^/]+)(?:\/(content|remix))?$/;
const VIDEO_ROUTES: { readonly [part: string]: RouteName } = {
  "": "video_job",
  content: "video_content",
  remix: "video_remix",
};

interface Call extends RunCall {
  readonly route: RouteName;
  principal?: Principal;
}

export function createApp(
  deps: AppDependencies,
): (exchange: Exchange) => Promise<void> {
  return async (exchange) => {
    const { method, path, response } = exchange;
    const call: Call = {
      exchange,
      requestId: newRequestId(),
      clientAddress: deps.clientAddress(
        exchange.socket.remoteAddress ?? "",
        exchange.headers.get("x-forwarded-for") ?? null,
      ),
      startedAtMs: deps.now(),
      route: routeOf(path),
      model: null,
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
  if (route === "reference") {
    if (!methods.includes(method)) throw notAllowed(exchange, methods);
    return sendReference(exchange);
  }
  if (path !== "/v1" && !path.startsWith("/v1/")) {
    throw notFound(exchange, "All paths begin with /v1.");
  }
  // A caller without a key cannot even find out which paths exist under `/v1`.
  const address = () => siteOf(call.clientAddress);
  const credential = headers.get("authorization") ?? "";
  const principal = await authenticate(credential, address, deps.keys);
  call.principal = principal;
  const what = `${method.replace("HEAD", "GET")} ${route}`;
  const ofVideos = methods.includes(method) ? VIDEO_HANDLERS[what] : undefined;
  if (ofVideos !== undefined) {
    const [, id = ""] = VIDEO_PATH.exec(path) ?? [];
    return await ofVideos(call, principal, deps, id);
  }
  if (method === "POST") {
    switch (route) {
      case "chat":
        return await runRequest(call, principal, CHAT_ENDPOINT, deps);
      case "speech":
        return await runRequest(call, principal, SPEECH_ENDPOINT, deps);
      case "image":
        return await runRequest(call, principal, IMAGE_ENDPOINT, deps);
      case "image_edit":
        return isForm(headers)
          ? await runUpload(call, principal, IMAGE_EDIT_UPLOAD, deps)
          : await runRequest(call, principal, IMAGE_EDIT_ENDPOINT, deps);
      case "transcription":
        return await runUpload(call, principal, TRANSCRIPTION_ENDPOINT, deps);
      case "translation":
        return await runUpload(call, principal, TRANSLATION_ENDPOINT, deps);
    }
  }
  const isRead = methods.includes(method);
  const scope = isRead ? "models" : null;
  const models = await deps.admission.modelsOf(principal, scope);
  if (isRead) return answerModels(call, models, deps.catalog);
  if (route === "other") {
    const paths = new Intl.ListFormat("en").format(
      Object.keys(ROUTES).filter((path) => path.startsWith("/v1/")),
    );
    throw notFound(exchange, `This service has ${paths}.`);
  }
  throw notAllowed(exchange, methods);
}

const VIDEO_HANDLERS: { readonly [what: string]: typeof retrieveVideo } = {
  "POST video": createVideo,
  "GET video": listVideos,
  "GET video_job": retrieveVideo,
  "DELETE video_job": deleteVideo,
  "GET video_content": sendVideo,
  "POST video_remix": remixVideo,
};

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
  if (error !== null && principal !== undefined) {
    const how = "refused";
    deps.failedRequests.add(principal, { ...call, requestId, error, how });
  }
  const durationMs = deps.now() - call.startedAtMs;
  deps.metrics.ended(route, durationMs);
  const { statusCode: status } = exchange.response;
  if (status < 400 && !deps.log.isSampled(requestId)) return;
  const line = {
    requestId: publicRequestId(requestId),
    keyId: principal?.keyId,
    ownerId: principal?.ownerId,
    clientAddress: call.clientAddress,
    method: exchange.method,
    path: shownPath(exchange),
    status,
    errorCode: error?.code,
    redis: error?.cause instanceof RedisUnavailableError
      ? error.cause.reason
      : undefined,
    durationMs: roundMs(durationMs),
  };
  const isRefused = error !== null && status < 500;
  if (isRefused) deps.refusals.add({ ...line, errorCode: error.code });
  else deps.log.info("request", line);
}

function shownPath({ path }: Exchange): string {
  return path.slice(0, PATH_CHARS_MAX);
}

/** 404 in OpenAI's words. The usual cause is another API of an SDK, or a base URL without `/v1`. */
function notFound(exchange: Exchange, hint: string): ApiError {
  const url = `${exchange.method} ${shownPath(exchange)}`;
  return new ApiError("not_found", `Invalid URL (${url}). ${hint}`);
}

/** The 405 for a path that has only these methods. */
function notAllowed(exchange: Exchange, methods: readonly string[]): ApiError {
  const allow = methods.join(", ");
  const what = `Not allowed to ${exchange.method} on ${shownPath(exchange)}.`;
  const message = `${what} Allowed: ${allow}.`;
  return new ApiError("method_not_allowed", message, { headers: { allow } });
}
