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

export type RefusalLog = ReturnType<typeof createRefusalLog>;

export function createRefusalLog(log: Pick<Log, "info">) {
  const groups = new Map<string, Group>();
  return {
    /** Writes the line, or counts it for the next summary. */
    add(line: RefusedRequest): void {
      const { clientAddress, keyId, ownerId, errorCode } = line;
      let client: LogFields = { clientAddress, keyId, ownerId };
      let name = `${keyId ?? siteOf(clientAddress)} ${errorCode}`;
      if (groups.size >= REFUSAL_LOG.clientsMax && !groups.has(name)) {
        client = { clientAddress: "others" };
        name = `others ${errorCode}`;
      }
      const group = groups.get(name) ??
        { client, written: 0, count: 0, last: line };
      groups.set(name, group);
      if (group.written < REFUSAL_LOG.linesFirst) {
        group.written += 1;
        return log.info("request", line);
      }
      group.count += 1;
      group.last = line;
    },
    /** Writes the summaries and forgets clients without new refusals. Call it every `sumMs` and at the end. */
    writeSums(): void {
      for (const [name, group] of groups) {
        const { client, count, last } = group;
        const { status, errorCode, requestId: lastRequestId } = last;
        if (count === 0) groups.delete(name);
        else {
          const sum = { ...client, status, errorCode, count, lastRequestId };
          log.info("refusals", sum);
          group.count = 0;
        }
      }
    },
  };
}
