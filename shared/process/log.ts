import type { WallNow } from "./clock.ts";

export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = typeof LOG_LEVELS[number];

/** Matches our keys and those of other vendors. */
const SECRET_PATTERN = /\bsk-[A-Za-z0-9_-]{8,}/g;
/**
 * What JSON leaves as it is, and terminals obey: C1 controls, and marks that reorder or
 * hide text.
 */
const UNPRINTABLE = /[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f]/g;
/** How many values the first eight hexadecimal digits of a request id have. */
const REQUEST_ID_HEADS = 2 ** 32;

/**
 * Data of one event: JSON values, or an error. Never keys, prompts or objects with
 * secrets.
 */
export type LogFields = Record<string, unknown>;

/**
 * Makes a line, without its line end, when it is written: many in a row cost half as
 * much as each by itself.
 */
export type Line = () => string;

/** The fields must not change afterwards. */
type WriteEvent = (event: string, fields?: LogFields) => void;

export interface Log extends Record<LogLevel, WriteEvent> {
  /** Written at any log level, as `info`: for events that supervisors wait for. */
  notice: WriteEvent;
  /** Whether to write about this request if it ends well. The same for all services. */
  isSampled(requestId: string): boolean;
}

/**
 * Makes a log that writes lines such as
 * `{"time":"2026-11-20T11:00:00.000Z","level":"info","service":"edge-auth","event":"ready"}`.
 * Text that looks like an API key is redacted anywhere in the line, as a last line of
 * defence: callers must not pass one in the first place.
 */
export function createLog({ service, level, sample = 1, now, write }: {
  service: string;
  level: LogLevel;
  /** The share of requests for which {@link Log.isSampled} is true. */
  sample?: number | undefined;
  now: WallNow;
  write: (line: Line, isUrgent: boolean) => void;
}): Log {
  const writeAs =
    (level: LogLevel, isUrgent: boolean): WriteEvent => (event, fields) => {
      const atMs = now();
      write(() => {
        const time = new Date(atMs).toISOString();
        const record: LogFields = { time, level, service, event, ...fields };
        for (const name in fields) {
          const value = fields[name];
          if (value instanceof Error) record[name] = describeError(value);
        }
        return JSON.stringify(record).replace(UNPRINTABLE, escaped)
          .replace(SECRET_PATTERN, "sk-[redacted]");
      }, isUrgent);
    };
  const sampledMax = sample * REQUEST_ID_HEADS;
  const rankMin = LOG_LEVELS.indexOf(level);
  const from = (level: LogLevel, isUrgent: boolean): WriteEvent =>
    LOG_LEVELS.indexOf(level) < rankMin ? () => {} : writeAs(level, isUrgent);
  return {
    debug: from("debug", false),
    info: from("info", false),
    warn: from("warn", true),
    error: from("error", true),
    notice: writeAs("info", true),
    isSampled: (requestId) => Number(`0x${requestId.slice(0, 8)}`) < sampledMax,
  };
}

/**
 * A log that drops everything: for commands with output of their own, and for tests.
 */
export const silentLog = createLog({
  service: "",
  level: "error",
  now: () => 0,
  write() {},
});

const escaped = (char: string): string =>
  `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** A duration rounded to tenths of a millisecond, as log lines show it. */
export const roundMs = (ms: number): number => Math.round(ms * 10) / 10;

/** An error as plain data, causes included, so that JSON does not turn it into `{}`. */
function describeError(error: unknown): LogFields {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  return { name, message, stack, cause: cause && describeError(cause) };
}

/**
 * Lines that wait for a slow reader, about 4 MiB; further ones are dropped and counted.
 */
const WAITING_LINES_MAX = 5_000;
const LINE_WAIT_MS = 50;

/**
 * Writes lines together, unless one is urgent: a write per line would cost more than
 * all else about it.
 */
export function createLineWriter(
  /** The destination: `Deno.stdout` in a service. */
  sink: { write(bytes: Uint8Array): Promise<number> },
  /** Called before the next line when lines were lost. */
  onDropped: (count: number) => void,
) {
  const encoder = new TextEncoder();
  let waiting: Line[] = [];
  let dropped = 0;
  let writing: Promise<void> | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const pump = async () => {
    await Promise.resolve(); // Waits for the other lines of this turn.
    while (waiting.length > 0) {
      const lines = waiting;
      waiting = [];
      if (dropped > 0) {
        onDropped(dropped);
        dropped = 0;
      }
      const text = lines.map((line) => `${line()}\n`).join("");
      const bytes = encoder.encode(text);
      try {
        for (let offset = 0; offset < bytes.length;) {
          offset += await sink.write(bytes.subarray(offset));
        }
      } catch {
        // The reader is gone; logging must not end the service.
        waiting = [];
      }
    }
    writing = null;
  };
  const writeNow = () => {
    clearTimeout(timer);
    timer = undefined;
    return writing ??= pump();
  };
  return {
    /**
     * Queues one line, an urgent one to be written at once. Never blocks, never throws.
     */
    write(line: Line, isUrgent = true): void {
      if (waiting.length >= WAITING_LINES_MAX) return void (dropped += 1);
      waiting.push(line);
      if (isUrgent) void writeNow();
      else timer ??= setTimeout(writeNow, LINE_WAIT_MS);
    },
    async flush(): Promise<void> {
      while (waiting.length > 0 || writing !== null) await writeNow();
    },
  };
}
