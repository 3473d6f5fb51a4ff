/**
 * The endpoints whose requests are forwarded as they are: which kind of model they are
 * for, which members bound the output, and how much they may cost.
 */
import type { ModelKind } from "../models/kinds.ts";

/** In whose form errors and signs of life are sent. */
export type Envelope = "openai" | "anthropic";

/** What distinguishes one forwarded endpoint from another. */
export interface ForwardEndpoint {
  /** The path of the API. That of a server is the same, below its base URL. */
  readonly path: string;
  /** The kind of models that it is for. */
  readonly kind: ModelKind;
  readonly envelope: Envelope;
  /** Whether `stream: true` asks for events. */
  readonly streams: boolean;
  /** The member that bounds the output in tokens; null: the model makes none. */
  readonly outputBound: string | null;
  /** Whether it costs nothing: it only counts tokens. */
  readonly isFree: boolean;
}

const RETRIEVAL = {
  envelope: "openai",
  streams: false,
  outputBound: null,
  isFree: false,
} as const;

/**
 * The forwarded endpoints by name, which metrics and `speaks` of a backend use, too.
 */
const ENDPOINTS = {
  messages: {
    path: "/v1/messages",
    kind: "chat",
    envelope: "anthropic",
    streams: true,
    outputBound: "max_tokens",
    isFree: false,
  },
  count_tokens: {
    path: "/v1/messages/count_tokens",
    kind: "chat",
    envelope: "anthropic",
    streams: false,
    outputBound: null,
    isFree: true,
  },
  responses: {
    path: "/v1/responses",
    kind: "chat",
    envelope: "openai",
    streams: true,
    outputBound: "max_output_tokens",
    isFree: false,
  },
  input_tokens: {
    path: "/v1/responses/input_tokens",
    kind: "chat",
    envelope: "openai",
    streams: false,
    outputBound: null,
    isFree: true,
  },
  compact: {
    path: "/v1/responses/compact",
    kind: "chat",
    envelope: "openai",
    streams: false,
    outputBound: "max_output_tokens",
    isFree: false,
  },
  completions: {
    path: "/v1/completions",
    kind: "chat",
    envelope: "openai",
    streams: true,
    outputBound: "max_tokens",
    isFree: false,
  },
  embeddings: { path: "/v1/embeddings", kind: "embedding", ...RETRIEVAL },
  rerank: { path: "/v1/rerank", kind: "rerank", ...RETRIEVAL },
  // Any of the `forward_paths` of a server; the request says which.
  other: { path: "", kind: "chat", ...RETRIEVAL },
} as const satisfies { readonly [name: string]: ForwardEndpoint };

/** The name of a forwarded endpoint. */
export type ForwardName = keyof typeof ENDPOINTS;

/** The names of all forwarded endpoints that have a path of their own. */
export const FORWARD_NAMES = [
  "messages",
  "count_tokens",
  "responses",
  "input_tokens",
  "compact",
  "completions",
  "embeddings",
  "rerank",
] as const satisfies readonly ForwardName[];

/** Returns what distinguishes an endpoint from the others. */
export function forwardEndpoint(name: ForwardName): ForwardEndpoint {
  return ENDPOINTS[name];
}
