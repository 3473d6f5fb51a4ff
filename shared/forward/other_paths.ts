/**
 * Paths of model servers beyond the endpoints that the gateway knows, such as
 * `/tokenize`: where the API and the server have them.
 */
import type { BackendConfig, Catalog } from "../models/catalog.ts";

/** The paths that any server of these models has. */
export function otherPathsOf(catalog: Catalog): ReadonlySet<string> {
  const backends = [...catalog.values().flatMap(({ backends }) => backends)];
  const templates = catalog.servers.map(({ template }) => template);
  const all = [...backends, ...templates];
  return new Set(all.flatMap((each) => each.forward_paths));
}

/**
 * Where a server has a path: `/v1/…` below its base URL, and any other one below what
 * the base URL has before its version. For `http://vllm:8000/v1` and `/tokenize`:
 * `http://vllm:8000/tokenize`.
 */
export function urlOfPath(
  { base_url: baseUrl }: Pick<BackendConfig, "base_url">,
  path: string,
): URL {
  const below = path.startsWith("/v1/") ? path.slice("/v1".length) : null;
  return new URL(
    below === null
      ? baseUrl.replace(/\/v\d+[a-z0-9]*$/, "") + path
      : baseUrl + below,
  );
}
