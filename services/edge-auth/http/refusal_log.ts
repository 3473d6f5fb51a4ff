/**
 * The log lines of refused requests: the first ones of a client, then one summary a
 * minute, so that no client fills the log.
 */
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
  errorCode: string | undefined;
}

interface Group {
  /** How many had a line of their own. */
  written: number;
  /** The next summary: how many had none, and the last of them. */
  sum: LogFields & { count: number };
}

export type RefusalLog = ReturnType<typeof createRefusalLog>;

export function createRefusalLog(log: Pick<Log, "info">) {
  /** By client and code. */
  const groups = new Map<string, Group>();
  return {
    /** Writes the line, or counts it for the next summary. */
    add(line: RefusedRequest): void {
      const { clientAddress, keyId, ownerId, status, errorCode } = line;
      let client: LogFields = { clientAddress, keyId, ownerId };
      let name = `${keyId ?? siteOf(clientAddress)} ${errorCode}`;
      if (groups.size >= REFUSAL_LOG.clientsMax && !groups.has(name)) {
        client = { clientAddress: "others" };
        name = `others ${errorCode}`;
      }
      const group = groups.get(name) ??
        { written: 0, sum: { ...client, status, errorCode, count: 0 } };
      groups.set(name, group);
      if (group.written < REFUSAL_LOG.linesFirst) {
        group.written += 1;
        return log.info("request", line);
      }
      const { sum } = group;
      sum.count += 1;
      sum.status = status;
      sum.lastRequestId = line.requestId;
    },
    /**
     * Writes the summaries and forgets clients without new refusals. Call it every
     * `sumMs` and at the end.
     */
    writeSums(): void {
      for (const [name, { sum }] of groups) {
        if (sum.count === 0) groups.delete(name);
        else log.info("refusals", { ...sum });
        sum.count = 0;
      }
    },
  };
}
