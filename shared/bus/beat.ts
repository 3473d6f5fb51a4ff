/**
 * Heartbeats: how edges know which workers live and how full they are, and how
 * workers know which edges still listen.
 */
import { z } from "zod";

export const BEAT_VERSION = 1;

/** What a worker says of itself every `workerBeatMs`. */
export interface WorkerBeat {
  version: number;
  /** Jobs it runs at once. */
  slots: number;
  inFlight: number;
  /** It takes no more jobs and will leave. */
  draining: boolean;
  /** Ids of the models it can run. */
  models: string[];
}

const workerBeatSchema = z.object({
  version: z.literal(BEAT_VERSION),
  slots: z.number().int().min(0),
  inFlight: z.number().int().min(0),
  draining: z.boolean(),
  models: z.array(z.string()),
});

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function encodeWorkerBeat(beat: WorkerBeat): Uint8Array {
  return encoder.encode(JSON.stringify(beat));
}

/** The beat, or null when it is of another version or damaged: such a worker is not used. */
export function decodeWorkerBeat(bytes: Uint8Array): WorkerBeat | null {
  let value: unknown;
  try {
    value = JSON.parse(decoder.decode(bytes));
  } catch {
    return null; // Damaged: the same as silence.
  }
  const parsed = workerBeatSchema.safeParse(value);
  return parsed.success ? parsed.data : null;
}
