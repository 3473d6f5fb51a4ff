/**
 * The endpoints whose requests are forwarded as they are: which kind of model they are
 * for, which members bound the output, and how much they may cost.
 */
import type { ModelKind } from "../models/kinds.ts";

/** What distinguishes one forwarded endpoint from another. */
export interface ForwardEndpoint {
  /** The path of the API. That of a server is the same, below its base URL. */
  readonly path: string;
  /** The kind of models that it is for. */
  readonly kind: ModelKind;
}

/** The forwarded endpoints by name, which metrics use, too. */
const ENDPOINTS = {
  embeddings: { path: "/v1/embeddings", kind: "embedding" },
  rerank: { path: "/v1/rerank", kind: "rerank" },
} as const satisfies { readonly [name: string]: ForwardEndpoint };

/** The name of a forwarded endpoint. */
export type ForwardName = keyof typeof ENDPOINTS;

/** The names of all forwarded endpoints. */
export const FORWARD_NAMES = ["embeddings", "rerank"] as const satisfies (
  readonly ForwardName[]
);

/** The properties of an endpoint. */
export function forwardEndpoint(name: ForwardName): ForwardEndpoint {
  return ENDPOINTS[name];
}
