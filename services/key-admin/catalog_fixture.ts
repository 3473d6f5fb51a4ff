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

/** Prices that a model of a kind may have. */
const PRICES: Readonly<Record<ModelKind, Readonly<Record<string, string>>>> = {
  chat: { input: "2.50", cached_input: "0.25", output: "10" },
  embedding: { input: "0.13" },
  rerank: { input: "0.05" },
  image: { image: "0.04" },
  speech: { million_characters: "15" },
  transcription: { second: "0.0001" },
  video: { second: "0.10" },
};

/**
 * A catalog of these ids: those of the simulator keep their kind, the others are chat
 * models. Those that `isPriced` finds have prices; by default none.
 */
export const catalogOfIds = (
  ids: readonly string[],
  isPriced: (id: string) => boolean = () => false,
): Catalog =>
  parseCatalog({
    models: ids.map((id) => {
      const kind = MODEL_KINDS.find((kind) => simulatedId(kind) === id) ??
        "chat";
      return {
        id,
        kind,
        ...isPriced(id) && { prices: PRICES[kind] },
        backends: [{ ...BACKEND, model: id }],
      };
    }),
  });
