/**
 * Whether a model server answers: asked by the client of the workers, so with the same
 * proxies, headers and rules.
 */
import { DISCOVERY_LIMITS } from "@gateway/shared/bus/server_lists";
import type { BackendConfig } from "@gateway/shared/models/catalog";
import { UPSTREAM_KEY_ENV } from "@gateway/shared/models/catalog_variables";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { type MonotonicNow, monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { newRequestId } from "@gateway/shared/process/ids";
import {
  errorOfResponse,
  redirectTarget,
} from "@gateway/shared/upstream/error_response";
import { UpstreamError } from "@gateway/shared/upstream/http/errors";
import { parseJson } from "@gateway/shared/upstream/json";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import {
  LIST_PATH,
  tinyOptions,
  type TinyRequest,
  tinyRequest,
} from "@gateway/shared/upstream/tiny_request";
import type { ProxyVariables } from "@gateway/shared/upstream/http/proxy";
import { namesIn } from "@gateway/shared/worker/models/model_lists";

/** What a server answered, for people. */
export interface ServerProbe {
  /** `http://127.0.0.1:11434/v1 : answers`. */
  servers: string;
  /** Whether it can be used. */
  isAnswering: boolean;
  /** The names of its models, if it was asked for them and has listed them. */
  names: readonly string[] | null;
}

/** How servers are reached. */
export interface ServerAccess {
  /** The key of a model server that this variable holds. */
  keyOf(variable: string): string | undefined;
  proxies: ProxyVariables;
}

/** Shorter than the start of the services, which it must not delay. */
const PROBE_MS_MAX = 2_000;
/** An answer to a tiny request is smaller. */
const ANSWER_BYTES_MAX = DISCOVERY_LIMITS.answerBytesMax;
const MS_PER_SECOND = 1_000;

/** One request to a server. */
interface ProbeRequest extends TinyRequest {
  readonly waitMs: number;
}

/** Asks a server for its models, for at most two seconds. Never rejects. */
export function probeServer(
  config: BackendConfig,
  access: ServerAccess,
): Promise<ServerProbe> {
  return ask(config, access, {
    method: "GET",
    path: LIST_PATH,
    body: "",
    waitMs: PROBE_MS_MAX,
    says: ({ status }) => status === 200 ? "answers" : describe(status),
  });
}

/**
 * Sends a server the smallest request that its model can answer, or asks it for its
 * models where an answer would cost more than a few tokens. Waits as long as a worker
 * waits for the first token. Never rejects.
 */
export async function askServer(
  config: BackendConfig,
  kind: ModelKind,
  { now = monotonicNow, ...access }: ServerAccess & { now?: MonotonicNow },
): Promise<ServerProbe> {
  const { path, ...rest } = tinyRequest(config, kind);
  const startedAtMs = now();
  return await ask(config, access, {
    ...rest,
    path,
    waitMs: config.deadlines.first_token_ms,
    says: ({ status, text }, server) => {
      if (path === LIST_PATH) {
        return status === 200
          ? `answers to GET ${LIST_PATH}; a request would cost a whole ${kind}`
          : describe(status);
      }
      if (status === 200) {
        return `answers in ${Math.round(now() - startedAtMs)} ms`;
      }
      const error = errorOfResponse(
        { status, body: parseJson(text) },
        server.redact,
      );
      return `answers ${status} to POST ${path}: ${error.logText}`;
    },
  });
}

/** An answer that was read whole. */
interface Answer {
  status: number;
  text: string;
}

async function ask(
  config: BackendConfig,
  { keyOf, proxies }: ServerAccess,
  { method, path, body, waitMs, says }: ProbeRequest & {
    /** What an answer that is no refusal says about the server. */
    says: (answer: Answer, server: ModelServer) => string;
  },
): Promise<ServerProbe> {
  const { base_url: url, api_key_env, keys } = config;
  // The first key of a pool stands for all, unless one is named.
  const keyName = api_key_env ?? keys[0]?.variable;
  const signal = AbortSignal.timeout(waitMs);
  let server: ModelServer | null = null;
  try {
    server = new ModelServer({
      config,
      apiKey: (keyName && keyOf(keyName)) || null,
      publicModel: config.model,
      now: monotonicNow,
      proxies,
    });
    const { status, location, text } = await server.exchange({
      encode: server.encoder(path, tinyOptions(config, { method })),
      body,
      context: { requestId: newRequestId(), signal },
      mustBeginSoon: false,
      statuses: "all",
    }, async ({ head, connection }) => {
      connection.bytesLeft = ANSWER_BYTES_MAX;
      return { ...head, text: await connection.readText() };
    });
    const refusal = refusalOf(status, { location, keyName });
    return {
      servers: `${url} : ${refusal ?? says({ status, text }, server)}`,
      // A list may be missing, but not an answer.
      isAnswering: refusal === null &&
        (status === 200 || method === "GET" && status < 500),
      names: status === 200 && path === LIST_PATH ? namesIn(text) : null,
    };
  } catch (error) {
    const why = signal.aborted
      ? `no answer in ${waitMs / MS_PER_SECOND} s`
      : whyNot(error);
    return { servers: `${url} : ${why}`, isAnswering: false, names: null };
  } finally {
    server?.close();
  }
}

/** What must be changed before the server can be used; null if nothing must. */
function refusalOf(
  status: number,
  { location, keyName }: { location: string; keyName: string | undefined },
): string | null {
  if (status >= 300 && status < 400) {
    const target = redirectTarget(location);
    return `redirects to ${target}, which is not followed: check the URL`;
  }
  if (status !== 401 && status !== 403) return null;
  return keyName === undefined
    ? `${status}, it wants a key: set ${UPSTREAM_KEY_ENV}, or api_key_env in the models file`
    : `${status}, check the key in ${keyName}`;
}

function describe(status: number): string {
  const hint = status === 404 ? ", does the URL lack /v1?" : "";
  return `answers ${status} to GET ${LIST_PATH}${hint}`;
}

/** Why there is no answer: `not reachable (connection refused)`. */
function whyNot(error: unknown): string {
  if (!(error instanceof UpstreamError)) return errorMessage(error);
  if (error.fault === "invalid") return "answers, but not in HTTP";
  const cause = error.cause ?? error;
  const [reason = ""] = errorMessage(cause).split(": ").slice(-1);
  const words = reason.replace(/ \(os error.*/, "").toLowerCase();
  return `not reachable (${words})`;
}
