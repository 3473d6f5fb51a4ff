/** Tells the other workers what this one uses of limited servers, and hears them. */
import type { BusLink } from "../../bus/link_nats.ts";
import { lastToken, subjects } from "../../bus/subjects.ts";
import type { MonotonicNow } from "../../process/clock.ts";
import type { Log } from "../../process/log.ts";
import { TELL_MS } from "../../server_limits/others.ts";
import { decodeReport, encodeReport } from "../../server_limits/report.ts";
import type { Proofs } from "../../server_limits/proofs.ts";
import { UseTable } from "../../server_limits/use_table.ts";
import { Keyrings, type KeyringsOptions } from "./keyrings.ts";

/** How long after a change it is told, with all others until then. */
const COALESCE_MS = 20;
/** How long a worker that starts waits to hear from the others. */
const JOIN_MS = 100;

/** What {@link UseSharing} needs. */
export interface UseSharingOptions {
  readonly bus: Pick<BusLink, "isConnected" | "publish" | "subscribe">;
  readonly workerId: string;
  readonly now: MonotonicNow;
  /** From 0 to 1, as `Math.random`. */
  readonly random: () => number;
  readonly onEvent: KeyringsOptions["onEvent"];
  readonly schedule: (run: () => void, waitMs: number) => void;
  readonly log: Pick<Log, "debug">;
}

/**
 * Neither subscribes nor tells while the table is empty. From then on it tells each
 * change at once, and everything every {@link TELL_MS}.
 */
export class UseSharing {
  /** What shows that servers answer, here or elsewhere. */
  readonly proofs: Proofs;
  /** The keys whose use is told. */
  readonly keyrings: Keyrings;
  readonly #options: UseSharingOptions;
  readonly #table: UseTable;
  #isSubscribed = false;
  #isStopped = false;
  #willTell = false;
  #toldAtMs = -Infinity;

  constructor(options: UseSharingOptions) {
    this.#options = options;
    const { now, random, onEvent } = options;
    const table = new UseTable(now);
    this.#table = table;
    this.proofs = table.proofs;
    this.keyrings = new Keyrings({ table, random, onEvent });
    table.listen(() => this.#tellSoon());
  }

  /** Resolves when the others have had time to tell, if there is anything to share. */
  async join(): Promise<void> {
    this.tick();
    if (!this.#isSubscribed) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#options.schedule(resolve, JOIN_MS);
    await promise;
  }

  /** Advances time. Must be called several times a second. */
  tick(): void {
    const { now, bus, workerId } = this.#options;
    const table = this.#table;
    if (table.isEmpty || this.#isStopped) return;
    if (!this.#isSubscribed) {
      this.#isSubscribed = true;
      bus.subscribe(subjects.allUse, ({ subject, data }) => {
        const from = lastToken(subject);
        if (from !== workerId) this.#hear(from, data);
      });
      return this.#tell({ isNew: true });
    }
    table.tick();
    if (now() - this.#toldAtMs >= TELL_MS) this.#tell();
  }

  /** Tells the others that this worker leaves. */
  stop(): void {
    if (this.#isSubscribed) this.#tell({ isLeaving: true });
    this.#isStopped = true;
  }

  #hear(from: string, data: Uint8Array): void {
    const report = decodeReport(data);
    if (report === null) return;
    const isUnknown = this.#table.hear(from, report);
    if (isUnknown || report.isNew) this.#tellSoon();
  }

  #tellSoon(): void {
    if (this.#willTell || !this.#isSubscribed) return;
    this.#willTell = true;
    this.#options.schedule(() => {
      this.#willTell = false;
      if (!this.#isStopped) this.#tell();
    }, COALESCE_MS);
  }

  #tell(how: { isNew?: boolean; isLeaving?: boolean } = {}): void {
    const { bus, workerId, now, log } = this.#options;
    this.#toldAtMs = now();
    if (!bus.isConnected) return;
    const report = { isNew: false, isLeaving: false, ...how };
    const message = encodeReport({
      ...report,
      uses: this.#table.uses(),
      proved: this.proofs.report(),
    });
    try {
      bus.publish(subjects.use(workerId), message);
    } catch (error) {
      // The next report, half a second later at most, has all of it.
      log.debug("publish_failed", { subject: subjects.use(workerId), error });
    }
  }
}
