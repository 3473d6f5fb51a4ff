/** The log lines of refused requests: the first ones of a client, then one summary a minute, so that no client fills the log. */
import { REFUSAL_LOG } from "@gateway/shared/limits";
import { siteOf } from "@gateway/shared/process/client_address";
import type { WallNow } from "@gateway/shared/process/clock";
import type { Log, LogFields } from "@gateway/shared/process/log";

export interface RefusedRequest extends LogFields {
  requestId: string;
  /** The client, if its key is unknown. */
  clientAddress: string;
  keyId: string | undefined;
  ownerId: string | undefined;
  status: number;
  errorCode: string;
}

interface Group {
  client: LogFields;
  /** How many had a line of their own. */
  written: number;
  count: number;
  firstAtMs: number;
  lastAtMs: number;
  last: RefusedRequest;
}

export class RefusalLog {
  readonly #log: Log;
  readonly #now: WallNow;
  readonly #groups = new Map<string, Group>();

  constructor({ log, now }: { log: Log; now: WallNow }) {
    this.#log = log;
    this.#now = now;
  }

  /** Writes the line, or counts it for the next summary. */
  add(line: RefusedRequest): void {
    const group = this.#groupOf(line);
    if (group.written < REFUSAL_LOG.linesFirst) {
      group.written += 1;
      return this.#log.info("request", line);
    }
    group.lastAtMs = this.#now();
    if (group.count === 0) group.firstAtMs = group.lastAtMs;
    group.count += 1;
    group.last = line;
  }

  /** Writes the summaries and forgets clients without new refusals. Call it every `sumMs` and at the end. */
  writeSums(): void {
    for (const [name, group] of this.#groups) {
      const { client, count, firstAtMs, lastAtMs, last } = group;
      if (count === 0) this.#groups.delete(name);
      else {
        this.#log.info("refusals", {
          ...client,
          status: last.status,
          errorCode: last.errorCode,
          count,
          firstAt: new Date(firstAtMs).toISOString(),
          lastAt: new Date(lastAtMs).toISOString(),
          lastRequestId: last.requestId,
        });
        group.count = 0;
      }
    }
  }

  #groupOf(last: RefusedRequest): Group {
    const { clientAddress, keyId, ownerId, errorCode } = last;
    let client: LogFields = { clientAddress, keyId, ownerId };
    let name = `${keyId ?? siteOf(clientAddress)} ${errorCode}`;
    const isFull = this.#groups.size >= REFUSAL_LOG.clientsMax;
    if (isFull && !this.#groups.has(name)) {
      client = { clientAddress: "others" };
      name = `others ${errorCode}`;
    }
    const group = this.#groups.get(name) ??
      { client, written: 0, count: 0, firstAtMs: 0, lastAtMs: 0, last };
    this.#groups.set(name, group);
    return group;
  }
}
