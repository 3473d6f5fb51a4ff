/** What a run is like, and what its backends say. */
import { encodeAnswerHead } from "@gateway/shared/forward/answer_head";
import { STREAM_LIMITS, type StreamLimits } from "@gateway/shared/limits";
import { seededRandom } from "../support/seeded_random.ts";

/** Random numbers that a seed decides. */
export class Random {
  readonly next: () => number;

  constructor(seed: number) {
    this.next = seededRandom(seed);
  }

  between(low: number, high: number): number {
    return low + this.next() * (high - low);
  }

  /** A whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  pick<T>(values: readonly [T, ...T[]]): T {
    return values[this.whole(0, values.length - 1)] ?? values[0];
  }
}

/**
 * `calm`: nothing goes wrong between the processes. `sleepy`: the same, but edges
 * stand still for long. `gentle`: what the protocol promises to hide. `rough`:
 * anything, processes killed included.
 */
export type Weather = "calm" | "sleepy" | "gentle" | "rough";

/** All that is decided about a run before it begins; times are from its begin. */
export interface Profile {
  weather: Weather;
  edges: number;
  workers: number;
  pauses: Pause[];
  limits: StreamLimits;
  requests: number;
  style: Style;
  link: Link;
  /** When the bus carries everything again. */
  linkFaultsEndMs: number;
  /** When, besides, the last pause is over. */
  quietMs: number;
  /** Processes that are killed, numbered as in {@link Pause}. */
  kills: { atMs: number; target: number }[];
  /** Share of the offers that workers reject. */
  rejectShare: number;
  /** Share of the requests that go to the queue group. */
  anyShare: number;
  /** Share of the clients that leave. */
  leaveShare: number;
  /** Time a client takes for what is there, 0: at once. */
  clientMsMax: number;
  hasBeats: boolean;
}

/** How backends answer. */
interface Style {
  stepsMax: number;
  waitMsMax: number;
  failShare: number;
}

/** What may happen to a message, as shares of 1. */
interface Link {
  dropShare: number;
  duplicateShare: number;
  /** Messages that may overtake or be overtaken. */
  reorderShare: number;
  delayMsMax: number;
}

/** A time in which a process stands still or loses its bus. */
interface Pause {
  atMs: number;
  durationMs: number;
  kind: "freeze" | "cut";
  /** Its number: the edges, then the workers. */
  target: number;
}

/** Small numbers, so that short answers fill windows and need many replays. */
const SMALL_LIMITS: StreamLimits = {
  ...STREAM_LIMITS,
  windowBytes: 8_192,
  framePayloadBytesMax: 512,
  replayBytes: 512,
  ackBytes: 1_024,
  ackFrames: 8,
};

/** How often each weather is chosen: rough weather has the most to find. */
const WEATHERS: readonly [Weather, ...Weather[]] = [
  "calm",
  "sleepy",
  "gentle",
  "gentle",
  "rough",
  "rough",
  "rough",
];

/** Decides what a run is like. */
export function makeProfile(random: Random): Profile {
  const weather = random.pick(WEATHERS);
  const edges = random.whole(1, 2);
  const workers = random.whole(1, 3);
  const linkFaultsEndMs = random.between(1_000, 12_000);
  const pauses = makePauses(random, weather, {
    targets: weather === "sleepy" ? edges : edges + workers,
    untilMs: linkFaultsEndMs,
  });
  const pauseEndsMs = pauses.map(({ atMs, durationMs }) => atMs + durationMs);
  const isRough = weather === "rough";
  return {
    weather,
    edges,
    workers,
    pauses,
    limits: random.chance(0.5) ? STREAM_LIMITS : SMALL_LIMITS,
    requests: random.whole(1, 4),
    style: makeStyle(random),
    link: makeLink(random, weather),
    linkFaultsEndMs,
    quietMs: Math.max(linkFaultsEndMs, ...pauseEndsMs),
    kills: isRough && random.chance(0.4)
      ? [{
        atMs: random.between(0, linkFaultsEndMs),
        target: random.whole(0, edges + workers - 1),
      }]
      : [],
    rejectShare: random.pick([0, 0, 0.3]),
    anyShare: random.pick([0, 0.3]),
    leaveShare: random.chance(0.3) ? 0.4 : 0,
    clientMsMax: random.pick([0, 0, 20, 300]),
    hasBeats: isRough && random.chance(0.5),
  };
}

function makeStyle(random: Random): Style {
  const { stepsMax, waitMsMax } = random.pick([
    { stepsMax: 80, waitMsMax: 5 },
    { stepsMax: 60, waitMsMax: 50 },
    { stepsMax: 20, waitMsMax: 400 },
    { stepsMax: 8, waitMsMax: 2_500 },
  ]);
  return { stepsMax, waitMsMax, failShare: random.pick([0, 0.3]) };
}

/** Calm and sleepy weather harm no message. */
function makeLink(random: Random, weather: Weather): Link {
  const isClean = weather === "calm" || weather === "sleepy";
  const share = (most: number) =>
    isClean || random.chance(0.4) ? 0 : random.between(0, most);
  return {
    dropShare: share(weather === "rough" ? 0.5 : 0.2),
    duplicateShare: share(0.2),
    reorderShare: share(0.3),
    delayMsMax: isClean ? 2 : random.pick([0.5, 2, 80]),
  };
}

/** Sleepy weather freezes edges; gentle and rough, any process. */
function makePauses(
  random: Random,
  weather: Weather,
  { targets, untilMs }: { targets: number; untilMs: number },
): Pause[] {
  if (weather === "calm") return [];
  const isSleepy = weather === "sleepy";
  return Array.from(
    { length: random.whole(isSleepy ? 1 : 0, 3) },
    (): Pause => ({
      atMs: random.between(0, untilMs),
      durationMs: random.between(10, PAUSE_MS_MAX[weather]),
      kind: isSleepy || random.chance(0.4) ? "freeze" : "cut",
      target: random.whole(0, targets - 1),
    }),
  );
}

/**
 * Gentle pauses, three together, stay below silenceLostMs, or nobody could promise to
 * hide them.
 */
const PAUSE_MS_MAX = { calm: 0, sleepy: 15_000, gentle: 1_500, rough: 6_000 };

/** How many of the answers are those of forwarded requests. */
const FORWARDED_SHARE = 0.3;

/** The head of a forwarded answer, which has the name of its offer. */
const headOf = (name: string): string =>
  encodeAnswerHead({
    content_type: "text/event-stream",
    headers: { "request-id": name },
  });

/** All that a backend will say after one offer. */
export interface Script {
  steps: ScriptStep[];
  /** The tokens of the whole answer. */
  tokens: number;
  fails: boolean;
  /** Whether its failure is one that another server may repair. */
  retryable: boolean;
  /** A head, then bytes without lines. */
  isForwarded: boolean;
  /** 0 without a head. */
  headBytes: number;
  bytes: Uint8Array;
  durationMs: number;
}

/** What a backend says at once, after a wait. */
interface ScriptStep {
  waitMs: number;
  /**
   * Where in the script's bytes this step's bytes end: it says whole lines, except of
   * a forwarded answer.
   */
  endByte: number;
  /** Tokens so far. */
  tokens: number;
}

/**
 * Makes up an answer. The bytes for every offer of every request differ in every line,
 * so that no piece can be taken for another.
 */
export function makeScript(
  name: string,
  random: Random,
  { style, limits }: Profile,
): Script {
  const fails = random.chance(style.failShare);
  const retryable = fails && !random.chance(0.5);
  const count = retryable ? 0 : random.whole(0, style.stepsMax);
  const steps: ScriptStep[] = [];
  const isForwarded = random.chance(FORWARDED_SHARE);
  let text = isForwarded && count > 0 ? headOf(name) : "";
  const headBytes = text.length;
  let tokens = 0;
  for (let i = 0; i < count; i++) {
    for (let lines = random.whole(1, 3); lines > 0; lines--) {
      const prefix = `${name}:${i}:${lines}:`;
      const bytes = lineBytes(random, limits);
      const code = 0x61 + (bytes + prefix.length) % 26;
      text += prefix.padEnd(bytes, String.fromCharCode(code));
      if (!isForwarded) text += "\n";
    }
    tokens += random.whole(1, 5);
    const waitMs = random.chance(0.3) ? 0 : random.between(0, style.waitMsMax);
    steps.push({ waitMs, endByte: text.length, tokens });
  }
  return {
    steps,
    tokens,
    fails,
    retryable,
    isForwarded,
    headBytes,
    bytes: new TextEncoder().encode(text),
    durationMs: steps.reduce((sum, { waitMs }) => sum + waitMs, 0),
  };
}

/**
 * Mostly the length of a chunk, sometimes longer than a frame, rarely than the window.
 */
function lineBytes(random: Random, limits: StreamLimits): number {
  if (random.chance(0.01)) return Math.floor(limits.windowBytes * 1.3);
  if (random.chance(0.03)) return Math.floor(limits.framePayloadBytesMax * 1.2);
  return random.whole(30, 300);
}
