/** The use of one model server, or of one key of it, by this worker and the others. */
import type { MonotonicNow } from "../process/clock.ts";
import { SlidingMinute } from "./minute.ts";
import type { OthersUse, OtherWorkers } from "./others.ts";
import type { UseEntry } from "./report.ts";
import { type Bounds, LOOK_AGAIN_MS, SETTLE_MS, waitOf } from "./rule.ts";

/** What a request is taken to cost before any has ended: a short conversation. */
const TOKENS_AT_FIRST = 1_000;
/** How much the last request changes what the next one is expected to cost. */
const LAST_COUNTS = 0.2;
/** How long a server is left alone that refuses without saying for how long. */
const COOL_MS = 1_000;
/** The same after several refusals in a row: it doubles with each. */
const COOL_MS_MAX = 30_000;
/** How long a key is left alone that its server does not know. */
export const DEAD_MS = 60_000;

/** A request that counts against the limits of a server until a minute has passed. */
export interface CountedRequest {
  readonly atMs: number;
  readonly second: number;
  readonly expected: number;
  /** It is the first one after a refusal: others wait until it is answered. */
  readonly isProbe: boolean;
}

/** What a {@link KeyUse} needs. */
export interface KeyUseOptions {
  readonly id: string;
  readonly now: MonotonicNow;
  readonly others: Pick<OtherWorkers, "useOf" | "countAt">;
  /** Something has changed that the others must hear of. Must not throw. */
  readonly onChange: () => void;
}

/** Counts what is used, and keeps until when nothing may be. */
export class KeyUse {
  readonly #options: KeyUseOptions;
  readonly #minute = new SlidingMinute();
  /** What was taken within {@link SETTLE_MS}, the oldest first. */
  readonly #justTaken: CountedRequest[] = [];
  #inFlight = 0;
  #expected = TOKENS_AT_FIRST;
  #coolUntilMs = -Infinity;
  /** Refusals in a row. */
  #refusals = 0;
  #deadUntilMs = -Infinity;
  #probe: "none" | "due" | "running" = "none";

  constructor(options: KeyUseOptions) {
    this.#options = options;
  }

  /** The requests of this worker that run. */
  get inFlight(): number {
    return this.#inFlight;
  }

  /**
   * For how long it is left alone, because its server has asked for that; 0: it is not.
   */
  get coolingMs(): number {
    const nowMs = this.#options.now();
    return Math.max(0, this.#coolUntilMs - nowMs, this.#others().coolingMs);
  }

  /** Whether its server does not know the key. */
  get isDead(): boolean {
    const nowMs = this.#options.now();
    return this.#deadUntilMs > nowMs || this.#others().deadMs > 0;
  }

  /** How long a request must wait at least; 0: it may be sent now. */
  waitMs(bounds: Bounds): number {
    const nowMs = this.#options.now();
    const others = this.#others();
    const coolingMs = Math.max(this.#coolUntilMs - nowMs, others.coolingMs);
    if (coolingMs > 0) {
      if (others.isRefused && this.#probe === "none") this.#probe = "due";
      return coolingMs;
    }
    if (this.#probe === "running") return LOOK_AGAIN_MS;
    return waitOf(bounds, this.#situations(nowMs, others));
  }

  /** How much of its bounds is used, by the one that is used most; 0: nothing. */
  loadOf(bounds: Bounds): number {
    const nowMs = this.#options.now();
    const { own, others } = this.#situations(nowMs, this.#others());
    let load = 0;
    for (const measure of ["inFlight", "requests", "tokens"] as const) {
      const used = own[measure] + others[measure];
      load = Math.max(load, used / (bounds[measure] ?? Infinity));
    }
    return load;
  }

  /** Counts a request that is sent now. */
  take(): CountedRequest {
    const nowMs = this.#options.now();
    this.#minute.advance(nowMs);
    const expected = Math.round(this.#expected);
    const isProbe = this.#probe === "due";
    if (isProbe) this.#probe = "running";
    const second = this.#minute.add(expected);
    const request = { atMs: nowMs, second, expected, isProbe };
    this.#inFlight += 1;
    this.#forgetTold(nowMs);
    this.#justTaken.push(request);
    this.#options.onChange();
    return request;
  }

  /** The request has ended, and has cost these tokens; null: nobody knows. */
  end(
    { second, expected, isProbe }: CountedRequest,
    tokens: number | null,
  ): void {
    this.#inFlight -= 1;
    if (isProbe && this.#probe === "running") this.#probe = "due";
    if (tokens !== null) {
      this.#minute.advance(this.#options.now());
      this.#minute.correct(second, { expected, actual: tokens });
      if (tokens > 0) {
        this.#expected += (tokens - this.#expected) * LAST_COUNTS;
      }
    }
    this.#options.onChange();
  }

  /**
   * The server has answered a request. Unless it was sent before a refusal, that says
   * that it refuses none at the moment.
   */
  answered(): void {
    if (this.#coolUntilMs > this.#options.now()) return;
    this.#refusals = 0;
    this.#probe = "none";
  }

  /** The server has asked to be left alone this long, but has refused nothing. */
  cool(ms: number): void {
    this.#coolFor(ms);
  }

  /**
   * The server has refused a request because of a limit; null: nobody knows for how
   * long.
   */
  refused(ms: number | null): void {
    this.#probe = "due";
    if (this.#coolUntilMs > this.#options.now()) {
      // It was sent before the last refusal, and says nothing new but the time.
      return this.#coolFor(ms ?? 0);
    }
    const ownMs = Math.min(COOL_MS * 2 ** this.#refusals, COOL_MS_MAX);
    this.#refusals += 1;
    this.#coolFor(ms ?? ownMs);
  }

  /** The server does not know the key. */
  die(): void {
    this.#deadUntilMs = this.#options.now() + DEAD_MS;
    this.#options.onChange();
  }

  /** The key has another value: what its server has said of the old one is over. */
  renew(): void {
    this.#deadUntilMs = -Infinity;
    this.#coolUntilMs = -Infinity;
    this.#refusals = 0;
    this.#probe = "none";
    this.#options.onChange();
  }

  /** What the others must know; null: nothing. */
  report(nowMs: number): UseEntry | null {
    this.#minute.advance(nowMs);
    const { requests, tokens } = this.#minute;
    const coolingMs = Math.max(0, this.#coolUntilMs - nowMs);
    const deadMs = Math.max(0, this.#deadUntilMs - nowMs);
    const inFlight = this.#inFlight;
    if (inFlight + requests + tokens + coolingMs + deadMs === 0) return null;
    const nextFreeMs = this.#minute.nextFreeMs(nowMs);
    return {
      id: this.#options.id,
      inFlight,
      requests,
      tokens,
      nextFreeMs: Number.isFinite(nextFreeMs) ? Math.max(0, nextFreeMs) : 0,
      coolingMs,
      isRefused: this.#probe !== "none",
      deadMs,
    };
  }

  #coolFor(ms: number): void {
    const untilMs = this.#options.now() + ms;
    if (untilMs <= this.#coolUntilMs) return;
    this.#coolUntilMs = untilMs;
    this.#options.onChange();
  }

  #others(): OthersUse {
    const { others, id, now } = this.#options;
    return others.useOf(id, now());
  }

  #situations(nowMs: number, others: OthersUse) {
    this.#minute.advance(nowMs);
    this.#forgetTold(nowMs);
    const { requests, tokens } = this.#minute;
    const inFlight = this.#inFlight;
    const just = this.#justTaken;
    return {
      own: { inFlight, requests, tokens },
      justTaken: {
        inFlight: Math.min(just.length, inFlight),
        requests: just.length,
        tokens: just.reduce((sum, { expected }) => sum + expected, 0),
      },
      others,
      workers: 1 + this.#options.others.countAt(nowMs),
      nextFreeMs: Math.min(
        this.#minute.nextFreeMs(nowMs),
        others.nextFreeMs,
      ),
    };
  }

  #forgetTold(nowMs: number): void {
    const just = this.#justTaken;
    const firstRecent = just.findIndex(({ atMs }) => nowMs - atMs < SETTLE_MS);
    just.splice(0, firstRecent < 0 ? just.length : firstRecent);
  }
}
