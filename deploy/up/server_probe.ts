/**
 * Whether a model server answers: asked by the client of the workers, so with the same
 * proxies, headers and rules.
 */
import type { BackendConfig } from "@gateway/shared/models/catalog";
import { UPSTREAM_KEY_ENV } from "@gateway/shared/models/catalog_variables";
import { monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { newRequestId } from "@gateway/shared/process/ids";
import { redirectTarget } from "@gateway/shared/upstream/error_response";
import { UpstreamError } from "@gateway/shared/upstream/errors";
import { ModelServer } from "@gateway/shared/upstream/model_server";
import type { Settings } from "./plan.ts";

/** What a server answered, for people. */
export interface ServerProbe {
  /** `http://127.0.0.1:11434/v1 : answers`. */
  servers: string;
  /** Whether it can be used. */
  isAnswering: boolean;
}

/** Shorter than the start of the services, which it must not delay. */
const PROBE_MS_MAX = 2_000;

/** Asks a server for its models, for at most two seconds. Never rejects. */
export async function probeServer(
  config: BackendConfig,
  { keyOf, proxies }: Pick<Settings, "keyOf" | "proxies">,
): Promise<ServerProbe> {
  const { base_url: url, api_key_env: keyName } = config;
  const signal = AbortSignal.timeout(PROBE_MS_MAX);
  let server: ModelServer | null = null;
  try {
    server = new ModelServer({
      config,
      apiKey: (keyName && keyOf(keyName)) || null,
      publicModel: config.model,
      now: monotonicNow,
      proxies,
    });
    const { status, location } = await server.exchange({
      encode: server.encoder("/models", { method: "GET" }),
      body: "",
      call: { requestId: newRequestId(), signal },
      mustBeginSoon: false,
      statuses: "all",
    }, ({ head }) => Promise.resolve(head));
    const refusal = refusalOf(status, { location, keyName });
    const isAnswering = refusal === null && status < 500;
    const answer = status === 200 ? "answers" : describe(status);
    return { servers: `${url} : ${refusal ?? answer}`, isAnswering };
  } catch (error) {
    const why = signal.aborted
      ? `no answer in ${PROBE_MS_MAX / 1_000} s`
      : whyNot(error);
    return { servers: `${url} : ${why}`, isAnswering: false };
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
  return `answers ${status} to GET /models${hint}`;
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
