/**
 * Which models the gateway offers and what each can do. Edges read it to answer
 * `GET /v1/models` and to check requests; workers read it to find the backends.
 */

import type { ModelAbilities } from "../openai/request_rules.ts";
import type { Dialect } from "./dialects.ts";

/** Any server that speaks OpenAI's chat completions. More than one is tried in order of preference. */
export interface BackendConfig {
  type: "openai";
  /** Appears in logs and metrics, unique within the model. */
  name: string;
  /** Up to and including `/v1`. */
  baseUrl: string;
  /** Name of the environment variable that holds the key; absent: no `Authorization` is sent. */
  apiKeyEnv?: string;
  /** The model's name at that server. */
  model: string;
  /** Share of requests among backends of the same preference. */
  weight: number;
  /** Lower is tried first. */
  preference: number;
  /** Sent with every call. Values that are secrets belong in the environment. */
  headers: { [name: string]: string };
  deadlines: BackendDeadlines;
  dialect: Dialect;
}

/** Beyond one of them: `upstream_timeout`. */
export interface BackendDeadlines {
  /** Connecting, and each step of sending the request. */
  connectMs: number;
  /** From the request sent to the first content. Only for streams: a whole answer comes at its end. */
  firstTokenMs: number;
  /** From one event to the next while somebody reads. */
  betweenTokensMs: number;
  /** The whole attempt. */
  totalMs: number;
}

export interface ModelConfig extends ModelAbilities {
  kind: "chat";
  ownedBy: string;
  /** Unix seconds, shown by `GET /v1/models`. */
  created: number;
  backends: BackendConfig[];
}

/** The models by id, in the order of the file. */
export type Catalog = ReadonlyMap<string, ModelConfig>;

/** The model of the service specification. */
export const DEFAULT_MODEL_ID = "neutral-3.7-plus";
