/** A log that tests read. */
import type { Log, LogFields, LogLevel } from "@gateway/shared/process/log";

/** A line that was logged. */
export interface LogLine {
  level: LogLevel;
  event: string;
  fields: LogFields;
}

/** A log that keeps its lines for a test to look at. */
export interface RecordingLog extends Log {
  readonly lines: LogLine[];
  /** The fields of the first line of this event. */
  find(event: string): LogFields | undefined;
}

/** Returns a log without lines. */
export function createRecordingLog(): RecordingLog {
  const lines: LogLine[] = [];
  const keep = (level: LogLevel) => (event: string, fields: LogFields = {}) =>
    void lines.push({ level, event, fields });
  return {
    lines,
    find: (event) => lines.find((line) => line.event === event)?.fields,
    debug: keep("debug"),
    info: keep("info"),
    warn: keep("warn"),
    error: keep("error"),
    notice: keep("info"),
    isSampled: () => true,
  };
}

/** One of our keys in full, or as much of one as is of use to somebody. */
const KEY = /\bsk-[A-Za-z0-9]{8,}/;

/**
 * Fails if a text contains a key (ASVS 16.2.5). Fixtures call it with all logs that
 * were written while they ran.
 */
export function assertNoKeys(text: string, where: string): void {
  const found = KEY.exec(text);
  if (found === null) return;
  const around = text.slice(Math.max(0, found.index - 200), found.index);
  throw new Error(`A key in ${where}, after: ${around}`);
}
