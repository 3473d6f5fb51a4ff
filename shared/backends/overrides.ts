/**
 * What operators have changed beside the list of models: key-admin keeps it in Redis,
 * where edges read it when they start, and tells edges and workers on the bus.
 */
import { z } from "zod";
import { encodeJson, parsePayload } from "../bus/stream/frame.ts";

const VERSION = 1;
const ID_CHARS_MAX = 300;
const NAME_CHARS_MAX = 64;
const WEIGHT_MAX = 10_000;

/** All of them go into one message of the bus: 200 KiB if all names are long. */
export const OVERRIDES_MAX = 500;
/** The Redis hash of overrides, by {@link targetOf} each. */
export const OVERRIDES_KEY = "overrides";
/** How often key-admin repeats them, for those that have missed a change. */
export const OVERRIDES_REPEAT_MS = 5_000;

const model = z.string().min(1).max(ID_CHARS_MAX);
const backend = z.string().min(1).max(NAME_CHARS_MAX);

/** The weight that a backend may have, as in the list of models. */
export const overrideWeight = z.int().min(1).max(WEIGHT_MAX);

/** One thing that an operator has changed. */
export const overrideSchema = z.discriminatedUnion("what", [
  /** It gets no new requests; those that run there end. */
  z.object({ what: z.literal("drain"), model, backend }),
  /** Its share of the requests is another one than in the list. */
  z.object({
    what: z.literal("weight"),
    model,
    backend,
    weight: overrideWeight,
  }),
  /** Edges refuse requests for it, and do not list it. */
  z.object({ what: z.literal("disable"), model }),
]);

const messageSchema = z.object({
  version: z.literal(VERSION),
  overrides: z.array(overrideSchema).max(OVERRIDES_MAX),
});

/** One thing that an operator has changed. */
export type Override = z.infer<typeof overrideSchema>;

/** What an override is about; of the same target there is only one. */
export type OverrideTarget =
  & Pick<Override, "what" | "model">
  & { backend?: string | undefined };

/** The field of an override in Redis. */
export const targetOf = ({ what, model, backend = "" }: OverrideTarget) =>
  JSON.stringify([what, model, backend]);

/** The message that tells all overrides. */
export const encodeOverrides = (overrides: readonly Override[]): Uint8Array =>
  encodeJson({
    version: VERSION,
    // What only people want to know stays in Redis.
    overrides: overrides.map((each) => overrideSchema.parse(each)),
  });

/** Reads a message; null if it is malformed or of another version. */
export const decodeOverrides = (bytes: Uint8Array): Override[] | null =>
  parsePayload(messageSchema, bytes)?.overrides ?? null;

/**
 * The overrides in the values of the hash in Redis. What cannot be read, as of a newer
 * version, is left out.
 */
export function readOverrides(values: readonly string[]): Override[] {
  return values.flatMap((text) => {
    const bytes = new TextEncoder().encode(text);
    return parsePayload(overrideSchema, bytes) ?? [];
  });
}

/** How a backend differs from the list of models. */
export interface BackendOverride {
  isDrained: boolean;
  /** Undefined: as in the list. */
  weight?: number;
}

/** The overrides that hold in a process. */
export class Overrides {
  #backends: ReadonlyMap<string, BackendOverride> = new Map();
  #disabled: ReadonlySet<string> = new Set();

  /** The ids of the models that are disabled. */
  get disabled(): ReadonlySet<string> {
    return this.#disabled;
  }

  /** Has exactly these from now on. */
  take(overrides: readonly Override[]): void {
    const backends = new Map<string, BackendOverride>();
    const disabled = new Set<string>();
    for (const each of overrides) {
      if (each.what === "disable") disabled.add(each.model);
      else {
        const key = keyOf(each.model, each.backend);
        const override = backends.get(key) ?? { isDrained: false };
        if (each.what === "drain") override.isDrained = true;
        else override.weight = each.weight;
        backends.set(key, override);
      }
    }
    this.#backends = backends;
    this.#disabled = disabled;
  }

  /** How a backend of a model differs from the list; undefined: it does not. */
  forBackend(model: string, backend: string): BackendOverride | undefined {
    if (this.#backends.size === 0) return undefined;
    return this.#backends.get(keyOf(model, backend));
  }
}

/** A control character is in no name. */
const keyOf = (model: string, backend: string) => `${model}\n${backend}`;
