/**
 * What edges and workers tell each other while requests wait for slots: how much waits
 * at an edge, for which edge a worker keeps a slot, and that the edge needs it no more.
 */
import { z } from "zod";
import { encodeJson, parsePayload } from "./stream/frame.ts";

/** Lanes that an edge tells of at most: those in which most waits. */
const LANES_MAX = 100;

const laneSchema = z.object({
  /** How many requests wait. */
  requests: z.int().min(1),
  /** Tokens that they ask for together. */
  tokens: z.number().min(0),
  /** The weights of the accounts whose requests wait, added up. */
  weight: z.number().positive(),
  /** How long the oldest has waited. */
  oldestMs: z.number().min(0),
});

/** What waits in one lane of an edge. */
export type LaneWaiting = z.infer<typeof laneSchema>;

/** What waits at an edge, by lanes: see `models/queue.ts`. */
export type EdgeWaiting = ReadonlyMap<string, LaneWaiting>;

/** What an edge tells when no request waits there. */
export const NOTHING_WAITS: EdgeWaiting = new Map();

const edgeBeatSchema = z.object({ waiting: z.record(z.string(), laneSchema) });
const EMPTY = new Uint8Array(0);

/** Returns the payload of an edge's beat: empty while nothing waits. */
export function encodeEdgeBeat(waiting: EdgeWaiting): Uint8Array {
  if (waiting.size === 0) return EMPTY;
  const lanes = waiting.size <= LANES_MAX
    ? waiting
    : [...waiting].sort(([, a], [, b]) => b.requests - a.requests)
      .slice(0, LANES_MAX);
  return encodeJson({ waiting: Object.fromEntries(lanes) });
}

/** Reads an edge's beat. What cannot be read says that nothing waits. */
export function decodeEdgeBeat(bytes: Uint8Array): EdgeWaiting {
  if (bytes.length === 0) return NOTHING_WAITS;
  const beat = parsePayload(edgeBeatSchema, bytes);
  return beat === null ? NOTHING_WAITS : new Map(Object.entries(beat.waiting));
}

const turnSchema = z.object({
  /** The worker that tells it. */
  worker: z.string(),
  /** The model whose request has freed the slot; null: it is not known. */
  model: z.string().nullable(),
  /**
   * `kept`: the worker keeps a slot for this edge. `passed`: it keeps for another edge
   * the slot of a request of this edge, whose end follows.
   */
  slot: z.enum(["kept", "passed"]),
});

/** What a worker tells an edge about one of its slots. */
export type Turn = z.infer<typeof turnSchema>;

/** Returns the message of a worker to an edge. */
export function encodeTurn(turn: Turn): Uint8Array {
  return encodeJson(turn);
}

/** Reads it; null if it is malformed. */
export function decodeTurn(bytes: Uint8Array): Turn | null {
  return parsePayload(turnSchema, bytes);
}

const returnSchema = z.object({ edge: z.string() });

/** Returns the message of an edge that does not need the slot kept for it. */
export function encodeReturn(edge: string): Uint8Array {
  return encodeJson({ edge });
}

/** Reads which edge it is; null if the message is malformed. */
export function decodeReturn(bytes: Uint8Array): string | null {
  return parsePayload(returnSchema, bytes)?.edge ?? null;
}
