import type { BackendConfig } from "@gateway/shared/models/catalog";
import { UPSTREAM_KEY_ENV } from "@gateway/shared/models/catalog_variables";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { errorMessage } from "@gateway/shared/process/env";
import type { Settings } from "./plan.ts";

/** Shorter than the start of the services, which it must not delay. */
const PROBE_MS_MAX = 2_000;

/** What answers, or why it does not. */
interface Probe {
  servers: string;
  isAnswering: boolean;
}

type ModelSettings = Pick<Settings, "catalog" | "hasSimulator" | "keyOf">;
type Server = Pick<BackendConfig, "base_url" | "api_key_env" | "headers">;

export interface DescribedModel extends Probe {
  id: string;
  kind: ModelKind;
}

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
      const servers = found.map(({ servers }) => servers).join(", ");
      const isAnswering = found.some(({ isAnswering }) => isAnswering);
      return { id, kind, servers, isAnswering };
    }),
  );
}

async function probeServer(
  { base_url: url, api_key_env: keyName, headers: own }: Server,
  keyOf: ModelSettings["keyOf"],
): Promise<Probe> {
  const signal = AbortSignal.timeout(PROBE_MS_MAX);
  const key = keyName && keyOf(keyName);
  const headers = { ...own, ...key && { authorization: `Bearer ${key}` } };
  try {
    const init = { headers, signal, redirect: "manual" } as const;
    const { status, body } = await fetch(`${url}/models`, init);
    await body?.cancel();
    return {
      servers: `${url} : ${meaningOf(status, keyName)}`,
      isAnswering: status < 500 && status !== 401 && status !== 403,
    };
  } catch (error) {
    const why = signal.aborted
      ? `no answer in ${PROBE_MS_MAX / 1_000} s`
      : `not reachable (${reasonOf(error)})`;
    return { servers: `${url} : ${why}`, isAnswering: false };
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

/** `connection refused`, of an error whose cause ends with that. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause ?? error : error;
  const [reason = ""] = errorMessage(cause).split(": ").slice(-1);
  return reason.replace(/ \(os error.*/, "").toLowerCase();
}
