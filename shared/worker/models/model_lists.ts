/** Asks model servers which models they have, and reads what they say. */
import { DISCOVERY_LIMITS } from "../../bus/server_lists.ts";
import { isJsonObject } from "../../process/error_text.ts";
import { newRequestId } from "../../process/ids.ts";
import { invalidAnswer, UpstreamError } from "../../upstream/http/errors.ts";
import type { BackendConfig } from "../../models/catalog.ts";
import type { ListingServer } from "./discovery.ts";
import { parseJson } from "../../upstream/json.ts";
import type { ModelServer } from "../../upstream/model_server.ts";

/**
 * The names of the models of a server, in its order. Rejects with an `UpstreamError`,
 * or with the reason of the signal.
 */
export function askModels(
  server: ModelServer,
  signal: AbortSignal,
): Promise<readonly string[]> {
  // Anthropic's list has pages, of which the largest has 1,000 models.
  const isPaged = server.config.dialect_name === "anthropic";
  const path = `/models${isPaged ? "?limit=1000" : ""}`;
  return server.exchange({
    encode: server.encoder(path, { method: "GET" }),
    body: "",
    context: { requestId: newRequestId(), signal },
    mustBeginSoon: false,
    totalMs: DISCOVERY_LIMITS.answerMs,
  }, async ({ connection }) => {
    connection.bytesLeft = DISCOVERY_LIMITS.answerBytesMax;
    const names = namesIn(await connection.readText());
    if (names === null) throw invalidAnswer("Not a list of models");
    return names;
  });
}

/** The values of a server's keys, as they are now; one null if it needs no key. */
export function apiKeysOf(
  { keys }: Pick<BackendConfig, "keys">,
  values: ReadonlyMap<string, string>,
): readonly (string | null)[] {
  if (keys.length === 0) return [null];
  return keys.map(({ variable }) => values.get(variable) ?? null);
}

/**
 * Makes one of servers that are the same but for their keys: they are asked for their
 * models in turn, until one accepts its key.
 */
export function openListing(servers: readonly ModelServer[]): ListingServer {
  return {
    async ask(signal) {
      let refusal: unknown;
      for (const server of servers) {
        try {
          return await askModels(server, signal);
        } catch (error) {
          const isOfKey = error instanceof UpstreamError &&
            error.fault === "credentials";
          if (!isOfKey) throw error;
          refusal = error;
        }
      }
      throw refusal;
    },
    close: () => servers.forEach((server) => server.close()),
  };
}

/**
 * The names in an answer to `GET /models`, each once; null if it is no list. A list may
 * stand alone, in `data` (OpenAI) or in `models`; entries without a name are skipped.
 */
export function namesIn(text: string): readonly string[] | null {
  const value = parseJson(text);
  const list = isJsonObject(value) ? value.data ?? value.models : value;
  if (!Array.isArray(list)) return null;
  const names = list.map((each) =>
    isJsonObject(each) ? each.id ?? each.name ?? each.model : each
  );
  return [...new Set(names.filter((name) => typeof name === "string"))];
}
