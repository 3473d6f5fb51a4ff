import { SteadyClock } from "@gateway/shared/process/clock";
import type { Scheduler } from "./scheduler.ts";

/**
 * A simulated process: runs what happens to it, unless it is dead, and later if it
 * is frozen. Time passes for it by ticks, which do not pile up while it is frozen.
 */
export class Process {
  readonly #inbox: (() => void)[] = [];
  readonly #clock: SteadyClock;
  #frozenUntilMs = 0;
  #silentSinceMs: number | null = null;
  #isDead = false;
  #isTicking = false;
  #hasMissedTick = false;
  #onTick: () => boolean = () => false;

  constructor(
    readonly name: string,
    readonly scheduler: Scheduler,
    readonly tickMs: number,
  ) {
    this.#clock = new SteadyClock(() => scheduler.nowMs);
  }

  /** Time without that in which it stood still. */
  get steadyMs(): number {
    return this.#clock.now();
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  get isFrozen(): boolean {
    return this.scheduler.nowMs < this.#frozenUntilMs;
  }

  /** How long it has shown no sign of life. */
  get silenceMs(): number {
    if (this.#silentSinceMs === null) return 0;
    if (!this.#isDead && !this.isFrozen) return 0;
    return this.scheduler.nowMs - this.#silentSinceMs;
  }

  /** Something happens to the process. */
  post(run: () => void): void {
    if (this.#isDead) return;
    if (this.isFrozen) this.#inbox.push(run);
    else run();
  }

  /** Ticks from now on, as long as `onTick` says that there is something to tick for. */
  startTicking(onTick: () => boolean): void {
    this.#onTick = onTick;
    if (this.#isTicking) return;
    this.#isTicking = true;
    this.#clock.tick();
    this.scheduler.after(this.tickMs, () => this.#tick());
  }

  /** Everything it held is gone. */
  kill(): void {
    this.#silentSinceMs ??= this.scheduler.nowMs;
    this.#isDead = true;
    this.#inbox.length = 0;
  }

  /** Stands still. What happened meanwhile happens afterwards, before or after the tick it missed. */
  freeze(durationMs: number, isTickFirst: boolean): void {
    if (this.#isDead || this.isFrozen) return;
    this.#silentSinceMs = this.scheduler.nowMs;
    this.#frozenUntilMs = this.scheduler.nowMs + durationMs;
    this.scheduler.after(durationMs, () => this.#thaw(isTickFirst));
  }

  #thaw(isTickFirst: boolean): void {
    if (this.#isDead) return;
    if (isTickFirst) this.#makeUpTick();
    for (const run of this.#inbox.splice(0)) this.post(run);
    this.#makeUpTick();
  }

  #makeUpTick(): void {
    if (!this.#hasMissedTick) return;
    this.#hasMissedTick = false;
    this.#tick();
  }

  #tick(): void {
    if (this.#isDead) return;
    if (this.isFrozen) {
      this.#hasMissedTick = true;
      return;
    }
    this.#clock.tick();
    this.#isTicking = this.#onTick();
    if (this.#isTicking) {
      this.scheduler.after(this.tickMs, () => this.#tick());
    }
  }
}
