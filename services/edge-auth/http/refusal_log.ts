/**
 * The log lines of refused requests: the first ones of a client, then one summary a
 * minute, so that no client fills the log.
 */
import { REFUSAL_LOG } from "@gateway/shared/limits";
import { siteOf } from "@gateway/shared/process/client_address";
import type { Log, LogFields } from "@gateway/shared/process/log";

/** The log line of a request that was answered with an error. */
export interface RefusedRequest extends LogFields {
  requestId: string;
  /** Where the request came from: tells clients apart while no key is known. */
  clientAddress: string;
  /** Absent if the key is unknown. */
  keyId: string | undefined;
  ownerId: string | undefined;
  /** The HTTP status. */
  status: number;
  errorCode: string | undefined;
}

/** The refusals of one client by one code since the last summary. */
interface Group {
  /** How many had a line of their own. */
  lines: number;
  /** The next summary: how many had none, and the last of them. */
  sum: LogFields & { count: number };
}

/**
 * Writes the first `linesFirst` refusals of a client by one code, and counts the
 * others. It remembers `clientsMax` of these groups; those beyond share one per code.
 */
export class RefusalLog {
  readonly #log: Pick<Log, "info">;
  /** Refusals by client and code. */
  readonly #groups = new Map<string, Group>();

  constructor(log: Pick<Log, "info">) {
    this.#log = log;
  }

  /** Writes the line, or counts it for the next summary. */
  add(line: RefusedRequest): void {
    const group = this.#groupOf(line);
    if (group.lines < REFUSAL_LOG.linesFirst) {
      group.lines += 1;
      return this.#log.info("request", line);
    }
    const { sum } = group;
    sum.count += 1;
    sum.status = line.status;
    sum.lastRequestId = line.requestId;
  }

  /**
   * Writes the summaries and forgets clients without new refusals. Call it every
   * `sumMs` and at the end.
   */
  writeSums(): void {
    for (const [name, { sum }] of this.#groups) {
      if (sum.count === 0) this.#groups.delete(name);
      else this.#log.info("refusals", { ...sum });
      sum.count = 0;
    }
  }

  #groupOf(line: RefusedRequest): Group {
    const groups = this.#groups;
    const { clientAddress, keyId, ownerId, status, errorCode } = line;
    let client: LogFields = { clientAddress, keyId, ownerId };
    let name = `${keyId ?? siteOf(clientAddress)} ${errorCode}`;
    if (groups.size >= REFUSAL_LOG.clientsMax && !groups.has(name)) {
      client = { clientAddress: "others" };
      name = `others ${errorCode}`;
    }
    const group = groups.get(name) ??
      { lines: 0, sum: { ...client, status, errorCode, count: 0 } };
    groups.set(name, group);
    return group;
  }
}
