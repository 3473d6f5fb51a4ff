import type { StreamLimits } from "@gateway/shared/limits";
import type { Random } from "./random.ts";

/** One thing a backend does: after a wait it says whole lines. */
export interface ScriptStep {
  waitMs: number;
  /** Where in the script's bytes this step's bytes end. */
  endByte: number;
  /** Completion tokens with this step. */
  tokens: number;
}

/** How an answer ends: complete, or by an error that may or may not be tried elsewhere. */
export type ScriptEnd = "complete" | "error" | "retryable_error";

/**
 * All that a backend will say in one attempt. The bytes of every attempt of every
 * request differ in every line, so that no piece can be taken for another.
 */
export interface Script {
  bytes: Uint8Array;
  steps: ScriptStep[];
  end: ScriptEnd;
  tokens: number;
  /** Time the backend takes if nothing stops it. */
  durationMs: number;
}

/** What the answers of a run are like. */
export interface ScriptStyle {
  stepsMax: number;
  waitMsMax: number;
  failShare: number;
}

/** Makes up an answer. */
export function makeScript(
  name: string,
  random: Random,
  style: ScriptStyle,
  limits: StreamLimits,
): Script {
  const end = pickEnd(random, style);
  const stepCount = end === "retryable_error"
    ? 0
    : random.whole(0, style.stepsMax);
  const steps: ScriptStep[] = [];
  let text = "";
  let tokens = 0;
  let durationMs = 0;
  for (let i = 0; i < stepCount; i++) {
    for (let lines = random.whole(1, 3); lines > 0; lines--) {
      text += lineOf(`${name}:${i}:${lines}:`, lineBytes(random, limits));
    }
    tokens += random.whole(1, 5);
    const waitMs = random.chance(0.3) ? 0 : random.between(0, style.waitMsMax);
    durationMs += waitMs;
    steps.push({ waitMs, endByte: text.length, tokens });
  }
  const bytes = new TextEncoder().encode(text);
  return { bytes, steps, end, tokens, durationMs };
}

function pickEnd(random: Random, style: ScriptStyle): ScriptEnd {
  if (!random.chance(style.failShare)) return "complete";
  return random.chance(0.5) ? "error" : "retryable_error";
}

/** Mostly the length of a chunk, sometimes longer than a frame, rarely than the window. */
function lineBytes(random: Random, limits: StreamLimits): number {
  if (random.chance(0.01)) return Math.floor(limits.windowBytes * 1.3);
  if (random.chance(0.03)) return Math.floor(limits.framePayloadBytesMax * 1.2);
  return random.whole(30, 300);
}

function lineOf(prefix: string, bytes: number): string {
  const filler = String.fromCharCode(0x61 + (bytes + prefix.length) % 26);
  return prefix.padEnd(bytes, filler) + "\n";
}
