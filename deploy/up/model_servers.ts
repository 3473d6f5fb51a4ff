import type { BackendConfig } from "@gateway/shared/models/catalog";
import { UPSTREAM_KEY_ENV } from "@gateway/shared/models/catalog_variables";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { monotonicNow } from "@gateway/shared/process/clock";
import { errorMessage } from "@gateway/shared/process/env";
import { AttemptDeadlines } from "@gateway/shared/upstream/attempt_deadlines";
import { UpstreamError } from "@gateway/shared/upstream/errors";
import {
  createConnect,
  HttpClient,
  type HttpConnection,
} from "@gateway/shared/upstream/http_client";
import { createRequestEncoder } from "@gateway/shared/upstream/request_encoder";
import type { ModelSettings } from "./settings.ts";

/** Shorter than the start of the services, which it must not delay. */
const PROBE_MS_MAX = 2_000;

export interface DescribedModel {
  id: string;
  kind: ModelKind;
  /** What answers, or why it does not. */
  servers: string;
  isAnswering: boolean;
}

type Probe = Omit<DescribedModel, "id" | "kind">;
type Server = Pick<BackendConfig, "base_url" | "api_key_env" | "headers">;

/** Asks the servers of each model for their models, for at most two seconds. Never rejects. */
export async function describeModels(
  { catalog, hasSimulator, keyOf }: ModelSettings,
): Promise<DescribedModel[]> {
  // One server often has many models.
  const probes = new Map<string, Promise<Probe>>();
  const probed = ({ base_url, api_key_env, headers }: Server) => {
    const server = { base_url, api_key_env, headers };
    const name = JSON.stringify(server);
    const probe = probes.get(name) ?? probeServer(server, keyOf);
    probes.set(name, probe);
    return probe;
  };
  return await Promise.all(
    [...catalog.values()].map(async ({ id, kind, backends }) => {
      if (hasSimulator) {
        const servers = "built-in simulator (not a real model)";
        return { id, kind, servers, isAnswering: true };
      }
      const found = await Promise.all(backends.map(probed));
      return {
        id,
        kind,
        servers: found.map(({ servers }) => servers).join(", "),
        isAnswering: found.some(({ isAnswering }) => isAnswering),
      };
    }),
  );
}

/** Connects as a worker does. */
async function probeServer(
  { base_url, api_key_env: keyName, headers }: Server,
  keyOf: ModelSettings["keyOf"],
): Promise<Probe> {
  const url = new URL(`${base_url}/models`);
  const deadlines = new AttemptDeadlines(
    monotonicNow,
    new AbortController().signal,
    PROBE_MS_MAX,
  );
  let connection: HttpConnection | undefined;
  try {
    const encode = createRequestEncoder(url, {
      ...{ method: "GET", accept: "application/json", contentType: null },
      apiKey: keyName === undefined ? null : keyOf(keyName) ?? null,
      headers,
    });
    const client = new HttpClient(createConnect(url), PROBE_MS_MAX);
    connection = await client.connection(deadlines);
    const request = encode("", { requestId: "" });
    const { status } = await connection.exchange(request, deadlines);
    return {
      servers: `${base_url} : ${meaningOf(status, keyName)}`,
      isAnswering: status < 500 && status !== 401 && status !== 403,
    };
  } catch (error) {
    let why = `not reachable (${reasonOf(error)})`;
    if (deadlines.signal.aborted) {
      why = `no answer in ${PROBE_MS_MAX / 1_000} s`;
    } else if (error instanceof UpstreamError && error.fault === "invalid") {
      why = "answers, but not in HTTP";
    }
    return { servers: `${base_url} : ${why}`, isAnswering: false };
  } finally {
    connection?.close();
    deadlines.dispose();
  }
}

/** What the status of `GET /models` says to the operator. */
function meaningOf(status: number, keyName: string | undefined): string {
  if (status >= 200 && status < 300) return "answers";
  if (status === 401 || status === 403) {
    return keyName === undefined
      ? `${status}, it wants a key: set ${UPSTREAM_KEY_ENV}, or api_key_env in the models file`
      : `${status}, check the key in ${keyName}`;
  }
  const hint = status === 404 ? ", does the URL lack /v1?" : "";
  return `answers ${status} to GET /models${hint}`;
}

/** `connection refused`, of an error whose cause is the system's. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause ?? error : error;
  return errorMessage(cause).replace(/ \(os error.*/, "").toLowerCase();
}
