/** Catalogs of models for tests of the console. */
import {
  type Catalog,
  DEFAULT_MODEL_ID,
  parseCatalog,
} from "@gateway/shared/models/catalog";
import { MODEL_KINDS, type ModelKind } from "@gateway/shared/models/kinds";
import type { TryKind } from "./domain/try/kinds.ts";
import { isTryKind } from "./domain/try/request.ts";

/** What the simulator calls its model of a kind, except chat. */
const simulatedId = (kind: ModelKind): string => `simulated-${kind}-1`;

/** The simulator's model of a kind that "Try it" offers. */
export const modelIdOf = (kind: TryKind): string =>
  kind === "chat" ? DEFAULT_MODEL_ID : simulatedId(kind);

/** The simulator's models of the kinds that "Try it" offers, except chat. */
export const MEDIA_MODELS: readonly string[] = MODEL_KINDS.filter(isTryKind)
  .filter((kind) => kind !== "chat").map(modelIdOf);

const BACKEND = { type: "openai", base_url: "http://model.test/v1" };

/**
 * A catalog of these ids: those of the simulator keep their kind, the others are chat
 * models.
 */
export const catalogOfIds = (ids: readonly string[]): Catalog =>
  parseCatalog({
    models: ids.map((id) => ({
      id,
      kind: MODEL_KINDS.find((kind) => simulatedId(kind) === id) ?? "chat",
      backends: [{ ...BACKEND, model: id }],
    })),
  });
