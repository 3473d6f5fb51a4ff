/**
 * What the processes of a simulated run live in: time, the bus, and what is counted.
 */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { SteadyClock } from "@gateway/shared/process/clock";
import { makeProfile, type Profile, Random, type Script } from "./profile.ts";

/** Simulated time: runs what was planned, in order of time, then of planning. */
export class Scheduler {
  /** The latest event first. */
  readonly #events: { atMs: number; run: () => void }[] = [];
  nowMs = 0;

  get isIdle(): boolean {
    return this.#events.length === 0;
  }

  after(delayMs: number, run: () => void): void {
    this.at(this.nowMs + delayMs, run);
  }

  /** Plans `run` for a time, at once if it has passed. */
  at(wantedMs: number, run: () => void): void {
    const atMs = Math.max(wantedMs, this.nowMs);
    let low = 0;
    for (let high = this.#events.length; low < high;) {
      const middle = (low + high) >> 1;
      if ((this.#events[middle]?.atMs ?? 0) > atMs) low = middle + 1;
      else high = middle;
    }
    this.#events.splice(low, 0, { atMs, run });
  }

  step(untilMs: number): boolean {
    const first = this.#events.at(-1);
    if (first === undefined || first.atMs > untilMs) return false;
    this.#events.pop();
    this.nowMs = first.atMs;
    first.run();
    return true;
  }
}

/** What a run consists of: its random numbers, its profile, time, and the bus. */
export class World {
  readonly random: Random;
  readonly profile: Profile;
  readonly scheduler = new Scheduler();
  readonly counts = noCounts();

  constructor(seed: number, readonly tell: (text: string) => void) {
    this.random = new Random(seed);
    this.profile = makeProfile(this.random);
  }

  get nowMs(): number {
    return this.scheduler.nowMs;
  }

  get limits() {
    return this.profile.limits;
  }

  log(text: string): void {
    this.tell(`${this.nowMs.toFixed(1)} ${text}`);
  }

  /**
   * `arrive` happens to the receiving process, if the message gets there: the bus
   * promises at most once, in order for each connection, and with faults not even that.
   */
  publish(from: Process, to: Process, arrive: () => void): void {
    if (!this.publishOnce(from, to, arrive)) return;
    if (this.#strikes(this.profile.link.duplicateShare)) {
      this.#carry(to, arrive);
    }
  }

  /** The same for a message that is delivered at most once whatever happens. */
  publishOnce(from: Process, to: Process, arrive: () => void): boolean {
    const isSent = from.isUp && !this.#strikes(this.profile.link.dropShare);
    if (isSent) this.#carry(to, arrive);
    return isSent;
  }

  #carry(to: Process, arrive: () => void): void {
    const { delayMsMax, reorderShare } = this.profile.link;
    let atMs = this.nowMs + this.random.between(0.1, delayMsMax);
    if (!this.#strikes(reorderShare)) {
      atMs = Math.max(atMs, to.arrivalMs);
      to.arrivalMs = atMs;
    }
    this.scheduler.at(atMs, () => {
      if (to.isUp) to.post(arrive);
    });
  }

  #strikes(share: number): boolean {
    return share > 0 && this.nowMs < this.profile.linkFaultsEndMs &&
      this.random.chance(share);
  }
}

/**
 * A simulated process with its connection to the bus: runs what happens to it, unless
 * it is dead, and later if it is frozen. Time passes for it by ticks, which do not pile
 * up while it is frozen.
 */
export abstract class Process {
  /** When the latest message for this process arrives: later ones keep behind it. */
  arrivalMs = 0;
  isDead = false;
  readonly #inbox: (() => void)[] = [];
  readonly #clock: SteadyClock;
  #isConnected = true;
  #frozenUntilMs = 0;
  #silentSinceMs: number | null = null;
  #isTicking = false;
  #hasMissedTick = false;

  constructor(readonly id: string, readonly world: World) {
    this.#clock = new SteadyClock(() => world.nowMs);
  }

  abstract onTick(): boolean;
  abstract onReconnect(): void;

  /** Time without that in which it stood still. */
  get steadyMs(): number {
    return this.#clock.now();
  }

  get isUp(): boolean {
    return this.#isConnected && !this.isDead;
  }

  get isFrozen(): boolean {
    return this.world.nowMs < this.#frozenUntilMs;
  }

  get silenceMs(): number {
    if (this.#silentSinceMs === null) return 0;
    if (!this.isDead && !this.isFrozen) return 0;
    return this.world.nowMs - this.#silentSinceMs;
  }

  post(run: () => void): void {
    if (this.isDead) return;
    if (this.isFrozen) this.#inbox.push(run);
    else run();
  }

  /** Ticks from now on, as long as there is something to tick for. */
  startTicking(): void {
    if (this.#isTicking) return;
    this.#isTicking = true;
    this.#clock.tick();
    this.#planTick();
  }

  kill(): void {
    this.#silentSinceMs ??= this.world.nowMs;
    this.isDead = true;
    this.#inbox.length = 0;
  }

  /** Loses the bus, which is back after `durationMs`. */
  cut(durationMs: number): void {
    if (!this.#isConnected) return;
    this.#isConnected = false;
    this.world.scheduler.after(durationMs, () => {
      this.#isConnected = true;
      this.post(() => this.onReconnect());
    });
  }

  /**
   * Stands still. What happened meanwhile happens afterwards, before or after the tick
   * it missed.
   */
  freeze(durationMs: number, isTickFirst: boolean): void {
    if (this.isDead || this.isFrozen) return;
    this.#silentSinceMs = this.world.nowMs;
    this.#frozenUntilMs = this.world.nowMs + durationMs;
    this.world.scheduler.after(durationMs, () => {
      if (this.isDead) return;
      if (isTickFirst) this.#makeUpTick();
      for (const run of this.#inbox.splice(0)) this.post(run);
      this.#makeUpTick();
    });
  }

  #makeUpTick(): void {
    if (this.#hasMissedTick) this.#tick();
  }

  #planTick(): void {
    this.world.scheduler.after(this.world.limits.tickMs, () => this.#tick());
  }

  #tick(): void {
    if (this.isDead) return;
    this.#hasMissedTick = this.isFrozen;
    if (this.isFrozen) return;
    this.#clock.tick();
    this.#isTicking = this.onTick();
    if (this.#isTicking) this.#planTick();
  }
}

/**
 * What truly became of one offer, for checks. Neither end of the stream sees it.
 */
export class OfferRecord {
  saidBytes = 0;
  saidTokens = 0;
  hasSaidEnd = false;
  /** Since when the edge wants no more of it, or null. */
  unwantedSinceMs: number | null = null;
  /** Whether the edge knew then which worker to tell. */
  isWorkerKnown = true;

  constructor(
    readonly name: string,
    readonly script: Script,
    /** By when the edge, and 35 s later the worker, must be done with it. */
    readonly settleByMs: number,
  ) {}

  /** Fails unless `bytes` are what the script says from `offset` on. */
  assertSaid(offset: number, bytes: Uint8Array): void {
    const end = offset + bytes.length;
    if (end > this.saidBytes) assert.fail(`${this.name}: more than was said`);
    const part = this.script.bytes.subarray(offset, end);
    if (Buffer.compare(part, bytes) !== 0) {
      assert.fail(
        `${this.name}: other bytes than said from ${offset} to ${end}`,
      );
    }
  }
}

/** How often things happened: a simulation that never sees a fault proves nothing. */
export interface Counts {
  complete: number;
  error: number;
  lost: number;
  rejected: number;
  clientGone: number;
  edgeDead: number;
  retries: number;
  naks: number;
  resentFrames: number;
  strayAnswers: number;
  cancelled: number;
  forgotten: number;
  blocked: number;
}

const noCounts = (): Counts => ({
  complete: 0,
  error: 0,
  lost: 0,
  rejected: 0,
  clientGone: 0,
  edgeDead: 0,
  retries: 0,
  naks: 0,
  resentFrames: 0,
  strayAnswers: 0,
  cancelled: 0,
  forgotten: 0,
  blocked: 0,
});
