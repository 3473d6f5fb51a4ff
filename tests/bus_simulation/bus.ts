import type { Process } from "./process.ts";
import type { Random } from "./random.ts";
import type { Scheduler } from "./scheduler.ts";

/** What may happen to a message, as shares of 1. */
export interface LinkFaults {
  dropShare: number;
  duplicateShare: number;
  /** Share of messages that may overtake or be overtaken. */
  reorderShare: number;
  /** Longest way of a message. */
  delayMsMax: number;
}

/** A process's connection to the bus. */
export class Connection {
  onReconnect: () => void = () => {};
  #isUp = true;
  /** When the latest message for this connection arrives: later ones keep behind it. */
  arrivalMs = 0;

  constructor(readonly process: Process) {}

  get isUp(): boolean {
    return this.#isUp && !this.process.isDead;
  }

  /** Breaks now, and is back after `durationMs`. */
  cut(scheduler: Scheduler, durationMs: number): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    scheduler.after(durationMs, () => {
      this.#isUp = true;
      this.process.post(() => this.onReconnect());
    });
  }
}

/** A bus that promises at most once, in order for each connection, and with faults not even that. */
export class Bus {
  constructor(
    readonly scheduler: Scheduler,
    readonly random: Random,
    readonly faults: LinkFaults,
    readonly faultsEndMs: number,
  ) {}

  /** `arrive` happens to the receiving process, if the message gets there. */
  publish(from: Connection, to: Connection, arrive: () => void): void {
    if (!this.publishOnce(from, to, arrive)) return;
    if (this.#strikes(this.faults.duplicateShare)) this.#carry(to, arrive);
  }

  /** The same for a message that is delivered at most once whatever happens. */
  publishOnce(from: Connection, to: Connection, arrive: () => void): boolean {
    const isSent = from.isUp && !this.#strikes(this.faults.dropShare);
    if (isSent) this.#carry(to, arrive);
    return isSent;
  }

  #carry(to: Connection, arrive: () => void): void {
    let atMs = this.scheduler.nowMs +
      this.random.between(0.1, this.faults.delayMsMax);
    if (!this.#strikes(this.faults.reorderShare)) {
      atMs = Math.max(atMs, to.arrivalMs);
      to.arrivalMs = atMs;
    }
    this.scheduler.at(atMs, () => {
      if (to.isUp) to.process.post(arrive);
    });
  }

  #strikes(share: number): boolean {
    return share > 0 && this.scheduler.nowMs < this.faultsEndMs &&
      this.random.chance(share);
  }
}
