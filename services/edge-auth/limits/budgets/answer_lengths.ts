/**
 * How long the answers of each model are for which clients set no bound: edges count
 * them together in Redis, so that a budget holds what such an answer is likely to cost.
 */
import { answerLengthsKey } from "@gateway/shared/keys/record";
import { usageDay } from "@gateway/shared/keys/limiter_state";
import type { WallNow } from "@gateway/shared/process/clock";
import type { Log } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";

/** What {@link AnswerLengths} needs. */
export interface AnswerLengthsOptions {
  redis: Pick<RedisLink, "state" | "command">;
  now: WallNow;
  log: Pick<Log, "warn">;
}

/** How often an edge writes what it has counted, and reads what all have. */
const SHARE_MS = 10_000;
const DAY_MS = 86_400_000;
/** The counts of today and yesterday are read. */
const KEPT_S = 3 * DAY_MS / 1_000;
/** Fewer answers say too little. */
const ANSWERS_MIN = 20;
const SHARE_OF_ANSWERS = 0.95;
/** Lengths of one step differ by a fifth at most: the fourth root of 2. */
const STEPS_PER_DOUBLING = 4;
const PATIENT = { deadlineMs: 1_000 };

/** Counts by the step of a length, by model. */
type Counts = Map<string, Map<number, number>>;

/** The lengths of answers, as far as this edge knows them. */
export class AnswerLengths {
  readonly #options: AnswerLengthsOptions;
  /** Answers that are not written yet. */
  #unwritten: Counts = new Map();
  /** What is expected of each model by the counts of all edges. */
  #expected: ReadonlyMap<string, number> = new Map();
  /** Whether Redis has refused the last exchange. */
  #isRefused = false;
  #timer: ReturnType<typeof setInterval> | undefined;
  #sharing: Promise<void> | null = null;

  constructor(options: AnswerLengthsOptions) {
    this.#options = options;
  }

  /** A complete answer of a model had this many tokens. */
  saw(model: string, tokens: number): void {
    add(this.#unwritten, model, { step: stepOf(tokens), count: 1 });
  }

  /** Tokens that 95 % of the answers of a model do not pass; null: too few are known. */
  expected(model: string): number | null {
    return this.#expected.get(model) ?? null;
  }

  /** Shares now and every ten seconds. */
  start(): void {
    void this.share();
    this.#timer ??= setInterval(() => void this.share(), SHARE_MS);
  }

  /** Ends, after the exchange that is under way. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#sharing;
  }

  /**
   * Writes what was counted, and reads the counts of all edges. Never rejects: what
   * fails is written the next time.
   */
  share(): Promise<void> {
    this.#sharing ??= this.#share().finally(() => {
      this.#sharing = null;
    });
    return this.#sharing;
  }

  async #share(): Promise<void> {
    const { redis, now } = this.#options;
    if (redis.state !== "ready") return;
    const nowMs = now();
    const today = answerLengthsKey(usageDay(nowMs));
    const written = this.#unwritten;
    this.#unwritten = new Map();
    try {
      for (const [model, steps] of written) {
        for (const [step, count] of steps) {
          const increase = ["HINCRBY", today, `${step}:${model}`, `${count}`];
          await redis.command(increase, PATIENT);
          steps.delete(step);
        }
      }
      if (written.size > 0) {
        await redis.command(["EXPIRE", today, String(KEPT_S)], PATIENT);
      }
      const yesterday = answerLengthsKey(usageDay(nowMs - DAY_MS));
      const counts: Counts = new Map();
      for (const key of [today, yesterday]) {
        readInto(counts, await redis.command(["HGETALL", key], PATIENT));
      }
      this.#expected = expectedOf(counts);
      this.#isRefused = false;
    } catch (error) {
      for (const [model, steps] of written) {
        for (const [step, count] of steps) {
          add(this.#unwritten, model, { step, count });
        }
      }
      this.#noteFailure(error);
    }
  }

  /** The link to Redis reports itself when that cannot be reached. */
  #noteFailure(error: unknown): void {
    if (error instanceof RedisUnavailableError || this.#isRefused) return;
    this.#isRefused = true;
    this.#options.log.warn("answer_lengths_not_shared", { error });
  }
}

/** What 95 % of the answers of each model do not pass, where enough are known. */
function expectedOf(counts: Counts): ReadonlyMap<string, number> {
  const expected = new Map<string, number>();
  for (const [model, steps] of counts) {
    const total = steps.values().reduce((sum, count) => sum + count, 0);
    if (total < ANSWERS_MIN) continue;
    let left = total * SHARE_OF_ANSWERS;
    for (const [step, count] of [...steps].sort(([a], [b]) => a - b)) {
      left -= count;
      if (left > 0) continue;
      expected.set(model, longestOf(step));
      break;
    }
  }
  return expected;
}

const stepOf = (tokens: number): number =>
  Math.ceil(STEPS_PER_DOUBLING * Math.log2(Math.max(1, tokens)));
const longestOf = (step: number): number =>
  Math.ceil(2 ** (step / STEPS_PER_DOUBLING));

function add(
  counts: Counts,
  model: string,
  { step, count }: { step: number; count: number },
): void {
  const steps = counts.get(model) ?? new Map<number, number>();
  steps.set(step, (steps.get(step) ?? 0) + count);
  counts.set(model, steps);
}

/** Adds the fields `<step>:<model>` of a hash. */
function readInto(counts: Counts, reply: unknown): void {
  const flat = Array.isArray(reply) ? reply.map(String) : [];
  for (let at = 0; at < flat.length; at += 2) {
    const [step = "", ...model] = (flat[at] ?? "").split(":");
    add(counts, model.join(":"), {
      step: Number(step),
      count: Number(flat[at + 1]),
    });
  }
}
