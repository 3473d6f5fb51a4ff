/** The log lines of refused requests: the first ones of a client, then one summary a minute, so that no client fills the log. */
import { REFUSAL_LOG } from "@gateway/shared/limits";
import { siteOf } from "@gateway/shared/process/client_address";
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
  last: RefusedRequest;
}

export class RefusalLog {
  readonly #log: Log;
  readonly #groups = new Map<string, Group>();

  constructor(log: Log) {
    this.#log = log;
  }

  /** Writes the line, or counts it for the next summary. */
  add(line: RefusedRequest): void {
    const { clientAddress, keyId, ownerId, errorCode } = line;
    let client: LogFields = { clientAddress, keyId, ownerId };
    let name = `${keyId ?? siteOf(clientAddress)} ${errorCode}`;
    const isFull = this.#groups.size >= REFUSAL_LOG.clientsMax;
    if (isFull && !this.#groups.has(name)) {
      client = { clientAddress: "others" };
      name = `others ${errorCode}`;
    }
    const group = this.#groups.get(name) ??
      { client, written: 0, count: 0, last: line };
    this.#groups.set(name, group);
    if (group.written < REFUSAL_LOG.linesFirst) {
      group.written += 1;
      return this.#log.info("request", line);
    }
    group.count += 1;
    group.last = line;
  }

  /** Writes the summaries and forgets clients without new refusals. Call it every `sumMs` and at the end. */
  writeSums(): void {
    for (const [name, group] of this.#groups) {
      const { client, count, last: { status, errorCode, requestId } } = group;
      if (count === 0) this.#groups.delete(name);
      else {
        const lastRequestId = requestId;
        const sum = { ...client, status, errorCode, count, lastRequestId };
        this.#log.info("refusals", sum);
        group.count = 0;
      }
    }
  }
}
