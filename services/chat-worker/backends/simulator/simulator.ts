import type { MonotonicNow } from "@gateway/shared/process/clock";
import type {
  ModelConfig,
  SimulatorBackendConfig,
} from "@gateway/shared/models/catalog";
import type { ChatRequest } from "@gateway/shared/openai/chat";
import type { Backend } from "../backend.ts";
import {
  Completion,
  type CompletionDeps,
  type CompletionRecord,
} from "./completion.ts";
import {
  corpusHash,
  type Language,
  lazyLanguage,
} from "./language/language.ts";
import { Candidates } from "./language/candidates.ts";
import type { Random } from "./sampling/random.ts";
import type { Sleep } from "./sleep.ts";
import { TurnKeeper } from "./turns.ts";

export { type CompletionRecord } from "./completion.ts";
export { type Language, lazyLanguage } from "./language/language.ts";
export { type Sleep, timerSleep } from "./sleep.ts";

/** Raised whenever the same request and seed give another answer than before. */
const SIMULATOR_VERSION = "1";

/** Options of {@link createSimulator}. */
export interface SimulatorOptions {
  model: ModelConfig;
  config: SimulatorBackendConfig;
  now: MonotonicNow;
  sleep: Sleep;
  /** For what no seed decides: answers without one, faults, jitter. */
  random: Random;
  /** The language to speak; several simulators may share one. Absent: learned at the first request. */
  language?: () => Language;
  /** Called once at the end of each request that was begun. */
  onEnd?: (record: CompletionRecord) => void;
}

/**
 * Makes the built-in model: a small statistical language model that honours every
 * field of a chat request, so that the gateway runs without a model server. The
 * same request with the same `seed` gets the same answer, in every process, with
 * and without `stream`; so does any request with `temperature` 0.
 *
 * `complete` throws `context_length_exceeded` for a prompt that leaves no room
 * for the answer, `invalid_value` for a response schema that nothing fits and for
 * an unknown control phrase, and the errors that knobs and phrases ask for.
 */
export function createSimulator(options: SimulatorOptions): Backend {
  const { model, config, now, sleep, random } = options;
  const language = options.language ?? lazyLanguage();
  const turns = new TurnKeeper({ now, sleep });
  let candidates: Candidates | undefined;
  const deps = (): CompletionDeps => {
    const learned = language();
    candidates ??= new Candidates(learned.tokenizer.vocabulary.size);
    return {
      model,
      knobs: config.knobs,
      language: learned,
      candidates,
      turns,
      now,
      sleep,
      random,
      ...(options.onEnd ? { onEnd: options.onEnd } : {}),
    };
  };
  return {
    name: config.name,
    fingerprint: `simulator-${SIMULATOR_VERSION}-${corpusHash()}`,
    complete: (request: ChatRequest, call) =>
      new Completion(deps(), request, call).events(),
  };
}
