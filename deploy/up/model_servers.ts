import { UPSTREAM_KEY_ENV } from "@gateway/shared/models/catalog_variables";
import type { ModelKind } from "@gateway/shared/models/kinds";
import { errorMessage } from "@gateway/shared/process/env";
import type { Settings } from "./plan.ts";

/** Shorter than the start of the services, which it must not delay. */
const PROBE_MS_MAX = 2_000;

export interface DescribedModel {
  id: string;
  kind: ModelKind;
  /** What answers, or why it does not. */
  servers: string;
  isAnswering: boolean;
}

/** Asks the servers of each model for their models, for at most two seconds. Never rejects. */
export async function describeModels(
  { catalog, hasSimulator, keyOf }: Pick<
    Settings,
    "catalog" | "hasSimulator" | "keyOf"
  >,
): Promise<DescribedModel[]> {
  return await Promise.all(
    [...catalog.values()].map(async ({ id, kind, backends }) => {
      if (hasSimulator) {
        const servers = "built-in simulator (not a real model)";
        return { id, kind, servers, isAnswering: true };
      }
      const found = await Promise.all(
        backends.map(({ base_url, api_key_env, headers }) => {
          const key = api_key_env && keyOf(api_key_env);
          const authorization = key && { authorization: `Bearer ${key}` };
          const sent = { ...headers, ...authorization };
          return probeServer(base_url, sent, api_key_env);
        }),
      );
      const servers = found.map(({ servers }) => servers).join(", ");
      const isAnswering = found.some(({ isAnswering }) => isAnswering);
      return { id, kind, servers, isAnswering };
    }),
  );
}

async function probeServer(
  url: string,
  headers: Record<string, string>,
  keyName: string | undefined,
) {
  const signal = AbortSignal.timeout(PROBE_MS_MAX);
  try {
    const init = { headers, signal, redirect: "manual" } as const;
    const { ok, status, body } = await fetch(`${url}/models`, init);
    await body?.cancel();
    const isRefused = status === 401 || status === 403;
    const hint = status === 404 ? ", does the URL lack /v1?" : "";
    const key = keyName
      ? `check the key in ${keyName}`
      : `it wants a key: set ${UPSTREAM_KEY_ENV}, or api_key_env in the models file`;
    const answers = isRefused
      ? `${status}, ${key}`
      : ok
      ? "answers"
      : `answers ${status} to GET /models${hint}`;
    const isAnswering = status < 500 && !isRefused;
    return { servers: `${url} : ${answers}`, isAnswering };
  } catch (error) {
    const why = signal.aborted
      ? `no answer in ${PROBE_MS_MAX / 1_000} s`
      : `not reachable (${reasonOf(error)})`;
    return { servers: `${url} : ${why}`, isAnswering: false };
  }
}

/** `connection refused`, of an error whose cause ends with that. */
function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? error.cause ?? error : error;
  const [reason = ""] = errorMessage(cause).split(": ").slice(-1);
  return reason.replace(/ \(os error.*/, "").toLowerCase();
}
