/** The smallest request that shows whether a model server answers. */
import type { BackendConfig } from "../models/catalog.ts";
import type { ModelKind } from "../models/kinds.ts";
import type { RequestOptions } from "./model_server.ts";

/** The path of the list of models. */
export const LIST_PATH = "/models";

/** A request to a server, below its base URL. */
export interface TinyRequest {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body: string;
}

/**
 * A request that costs next to nothing: a completion of one token, or what is as small
 * for the kind of the model. Where the smallest answer would be a whole image or
 * recording, the server is only asked for its models.
 */
export function tinyRequest(
  config: BackendConfig,
  kind: ModelKind,
): TinyRequest {
  const post = postOf(config, kind);
  if (post === null) return { method: "GET", path: LIST_PATH, body: "" };
  const [path, body] = post;
  return { method: "POST", path, body: JSON.stringify(body) };
}

function postOf(
  { model, dialect }: BackendConfig,
  kind: ModelKind,
): [path: string, body: object] | null {
  if (kind === "embedding") return ["/embeddings", { model, input: "Hi" }];
  if (kind === "rerank") {
    return ["/rerank", { model, query: "Hi", documents: ["Hi"] }];
  }
  if (kind !== "chat") return null;
  const messages = [{ role: "user", content: "Hi" }];
  return dialect.speaks.includes("chat")
    ? ["/chat/completions", { model, messages, [dialect.max_tokens_field]: 1 }]
    : ["/messages", { model, messages, max_tokens: 1 }];
}

/** What such a request needs besides the key. */
export const tinyOptions = (
  { dialect_name }: Pick<BackendConfig, "dialect_name">,
  { method }: Pick<TinyRequest, "method">,
): RequestOptions => ({
  method,
  ...dialect_name === "anthropic" && {
    defaults: { "anthropic-version": "2023-06-01" },
  },
});
