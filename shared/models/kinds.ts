/** The kinds of models, and what follows from them: rights, units and workers. */
import type { WorkerFamily } from "../bus/subjects.ts";
import type { UsageUnit } from "../keys/limiter_state.ts";
import type { KeyScope } from "../keys/record.ts";

/**
 * What a model makes: text, images, speech, the text of a recording, videos, vectors
 * that stand for texts, or an order of documents.
 */
export const MODEL_KINDS = [
  "chat",
  "image",
  "speech",
  "transcription",
  "video",
  "embedding",
  "rerank",
] as const;

/** What a model makes. */
export type ModelKind = typeof MODEL_KINDS[number];

/** The right that a key needs to use a model of this kind. */
export const scopeOf = (kind: ModelKind): KeyScope => SCOPE_OF_KIND[kind];

const SCOPE_OF_KIND: Readonly<Record<ModelKind, KeyScope>> = {
  chat: "chat",
  image: "image",
  speech: "speech",
  transcription: "speech",
  video: "video",
  embedding: "embedding",
  rerank: "embedding",
};

/** The unit that requests for a model of this kind cost; null: tokens. */
export const UNIT_OF_KIND: Readonly<Record<ModelKind, UsageUnit | null>> = {
  chat: null,
  image: "images",
  speech: "characters",
  transcription: "audioSeconds",
  video: "videoSeconds",
  embedding: null,
  rerank: null,
};

/** The workers that run a model of this kind. */
export const familyOf = (kind: ModelKind): WorkerFamily =>
  UNIT_OF_KIND[kind] === null ? "chat" : "media";
