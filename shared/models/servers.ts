/**
 * Servers of `models.json` whose models are offered under the names that they have
 * there: workers ask each for its list, and tell the edges.
 */
import { z } from "zod";
import { REQUEST_LIMITS } from "../limits.ts";
import {
  backend,
  backendName,
  checkKeys,
  members,
  namedBackend,
  positive,
  textOf,
} from "./backend.ts";
import { MODEL_KINDS, type ModelKind } from "./kinds.ts";
import type { Prices } from "../money/prices.ts";
import {
  discoveredPricesSchema,
  entryFor,
  priceMistakes,
} from "./price_list.ts";

const SECONDS_MAX = 86_400;
const MS_PER_SECOND = 1_000;
/** What requests may call a model. */
const MODEL_ID = /^[A-Za-z0-9][A-Za-z0-9._:\/@+-]*$/;

const discover = members({
  prefix: textOf(
    /^(?:[A-Za-z0-9][A-Za-z0-9._:\/@+-]{0,63})?$/,
    "up to 64 letters, digits, '.', '_', ':', '/', '@', '+' or '-'",
  ).default("").describe("Stands before the names that the server lists."),
  every_seconds: positive.max(SECONDS_MAX).default(60)
    .describe("How often a worker asks for the list."),
  prices: discoveredPricesSchema.optional().describe(
    "What requests to models of the server cost, by the names that they have there, or by beginnings of names that end with *.",
  ),
}).prefault({}).describe("How the models of the server are found.");

const kinds = z.record(
  textOf(
    /^[^*\p{Cc}]{0,200}\*?$/u,
    "a name, or the beginning of names and '*'",
  ),
  z.enum([...MODEL_KINDS, "none"]),
).default({}).describe(
  "The kinds of models by their names at the server, or by beginnings of names that end with *; none: not offered. Default: guessed by well-known names, otherwise chat.",
);

// To probe each of its models would load one after the other; that it lists them shows
// that it answers.
const { model: _, probe: __, ...shape } = backend.shape;

/** A server whose models are found, with all defaults. */
export const serverSchema = members({
  ...shape,
  name: backendName.describe("Name in logs and metrics, unique in the list."),
  discover,
  kinds,
}).superRefine(checkKeys).transform(({ discover, kinds, ...server }) => ({
  name: server.name,
  prefix: discover.prefix,
  everyMs: discover.every_seconds * MS_PER_SECOND,
  kinds,
  prices: discover.prices ?? {},
  /** A backend without its model. */
  template: namedBackend(server, server.name, "server"),
  /**
   * A model of the file that stands for the first chat model of the list, unless the
   * list has the name that it has there; null: none does.
   */
  standIn: null as string | null,
}));

/** A server whose models are found. */
export type ServerConfig = z.output<typeof serverSchema>;

/** The well-known names of models that make no texts. */
const NAMES: readonly [name: RegExp, kind: ModelKind][] = [
  [/rerank/i, "rerank"],
  [/embed|(^|[/_-])(bge|gte|e5|all-minilm)[-_]/i, "embedding"],
  [/whisper|transcribe|parakeet/i, "transcription"],
  [/(^|[/_.-])(tts|kokoro|orpheus|xtts|chatterbox)/i, "speech"],
  [/(^|[/_-])(sora|wan-?2|ltx-video|hunyuan-?video|cogvideo)/i, "video"],
  [
    /(^|[/_-])(dall-e|gpt-image|flux|sdxl|stable-diffusion|qwen-image)/i,
    "image",
  ],
];

/** The kind of a model that a server lists; null: it is not offered. */
export function kindIn(
  { prefix, kinds }: Pick<ServerConfig, "prefix" | "kinds">,
  id: string,
): ModelKind | null {
  const name = id.slice(prefix.length);
  const kind = entryFor(kinds, name);
  if (kind !== undefined) return kind === "none" ? null : kind;
  return NAMES.find(([form]) => form.test(name))?.[1] ?? "chat";
}

/**
 * The prices of a model that a server lists; undefined if it has none, or those of
 * another kind of models.
 */
export function pricesIn(
  { prefix, prices }: Pick<ServerConfig, "prefix" | "prices">,
  { id, kind }: { id: string; kind: ModelKind },
): Prices | undefined {
  const price = entryFor(prices, id.slice(prefix.length));
  if (price === undefined || priceMistakes(kind, price).length > 0) {
    return undefined;
  }
  return price;
}

/** The id under which a model of a server is offered; null if it cannot be one. */
export function idOf(
  { prefix }: Pick<ServerConfig, "prefix">,
  name: string,
): string | null {
  const id = prefix + name;
  const fits = id.length <= REQUEST_LIMITS.modelCharsMax && MODEL_ID.test(id);
  return fits ? id : null;
}

/** What runs a model that a server lists. */
export const backendsOf = ({ template, prefix }: ServerConfig, id: string) => [
  { ...template, model: id.slice(prefix.length) },
];
