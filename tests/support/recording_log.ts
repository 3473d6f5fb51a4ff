import type { Log, LogFields, LogLevel } from "@gateway/shared/process/log";

/** One line that would have been written. */
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

/** Makes an empty {@link RecordingLog}; those made with `with()` share its lines. */
export function createRecordingLog(
  lines: LogLine[] = [],
  base: LogFields = {},
): RecordingLog {
  const keep =
    (level: LogLevel) => (event: string, fields: LogFields = {}): void => {
      lines.push({ level, event, fields: { ...base, ...fields } });
    };
  return {
    lines,
    find: (event) => lines.find((line) => line.event === event)?.fields,
    debug: keep("debug"),
    info: keep("info"),
    warn: keep("warn"),
    error: keep("error"),
    notice: keep("info"),
    with: (fields) => createRecordingLog(lines, { ...base, ...fields }),
  };
}
