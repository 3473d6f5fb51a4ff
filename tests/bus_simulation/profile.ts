import { STREAM_LIMITS, type StreamLimits } from "@gateway/shared/limits";
import type { LinkFaults } from "./bus.ts";
import type { Random } from "./random.ts";
import type { ScriptStyle } from "./script.ts";

/**
 * `calm`: nothing goes wrong between the processes. `sleepy`: the same, but edges
 * stand still for long. `gentle`: what the protocol promises to hide. `rough`:
 * anything, processes killed included.
 */
export type Weather = "calm" | "sleepy" | "gentle" | "rough";

/** What one run is like. */
export type Profile = ReturnType<typeof makeProfile>;

/** Small numbers, so that short answers fill windows and need many replays. */
const SMALL_LIMITS: StreamLimits = {
  ...STREAM_LIMITS,
  windowBytes: 8_192,
  framePayloadBytesMax: 512,
  ackBytes: 1_024,
  ackFrames: 8,
  replayBytes: 512,
};

const WEATHERS: readonly [Weather, ...Weather[]] = [
  "calm",
  "sleepy",
  ...["gentle", "gentle"] as const,
  ...["rough", "rough", "rough"] as const,
];

/** Makes up a run. */
export function makeProfile(random: Random) {
  const weather = random.pick(WEATHERS);
  const edges = random.whole(1, 2);
  const workers = random.whole(1, 3);
  const linkFaultsEndMs = random.between(1_000, 12_000);
  const pauses = makePauses(random, weather, edges, workers, linkFaultsEndMs);
  const pauseEndsMs = pauses.map(({ atMs, durationMs }) => atMs + durationMs);
  const isRough = weather === "rough";
  return {
    weather,
    limits: random.chance(0.5) ? STREAM_LIMITS : SMALL_LIMITS,
    edges,
    workers,
    requests: random.whole(1, 4),
    style: makeStyle(random),
    link: makeLink(random, weather),
    /** When the bus carries everything again, and when the last pause is over as well. */
    linkFaultsEndMs,
    quietMs: Math.max(linkFaultsEndMs, ...pauseEndsMs),
    pauses,
    kills: isRough && random.chance(0.4)
      ? [{
        atMs: random.between(0, linkFaultsEndMs),
        target: random.whole(0, edges + workers - 1),
      }]
      : [],
    rejectShare: random.pick([0, 0, 0.3]),
    /** Share of jobs that any worker may take. */
    anyShare: random.pick([0, 0.3]),
    leaveShare: random.chance(0.3) ? 0.4 : 0,
    /** Time a client takes for what is there, 0: at once. */
    clientMsMax: random.pick([0, 0, 20, 300]),
    /** Whether the processes hear each other's beats. */
    hasBeats: isRough && random.chance(0.5),
  };
}

function makeStyle(random: Random): ScriptStyle {
  const [stepsMax, waitMsMax] = random.pick<[number, number]>(
    [[80, 5], [60, 50], [20, 400], [8, 2_500]],
  );
  return { stepsMax, waitMsMax, failShare: random.pick([0, 0.3]) };
}

function makeLink(random: Random, weather: Weather): LinkFaults {
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

/** Times in which a process stands still or loses its bus. `target`: the edges, then the workers. */
function makePauses(
  random: Random,
  weather: Weather,
  edges: number,
  workers: number,
  untilMs: number,
): {
  atMs: number;
  durationMs: number;
  kind: "freeze" | "cut";
  target: number;
}[] {
  if (weather === "calm") return [];
  const isSleepy = weather === "sleepy";
  return Array.from({ length: random.whole(isSleepy ? 1 : 0, 3) }, () => ({
    atMs: random.between(0, untilMs),
    durationMs: random.between(10, PAUSE_MS_MAX[weather]),
    kind: isSleepy || random.chance(0.4) ? "freeze" : "cut",
    target: random.whole(0, (isSleepy ? edges : edges + workers) - 1),
  }));
}

/** Gentle pauses, three together, stay below silenceLostMs, or nobody could promise to hide them. */
const PAUSE_MS_MAX = { calm: 0, sleepy: 15_000, gentle: 1_500, rough: 6_000 };
