/** The log of a service: one line of JSON per event, without secrets. */
import type { WallNow } from "./clock.ts";

/** The levels of events, from the least to the most serious. */
export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;

/** How serious an event is, and from which level on a log writes events. */
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

/** Writes one event. The fields must not change afterwards. */
export type WriteEvent = (event: string, fields?: LogFields) => void;

/** One function per level, each of which writes an event with its data. */
export interface Log extends Record<LogLevel, WriteEvent> {
  /** Written at any log level, as `info`: for events that supervisors wait for. */
  notice: WriteEvent;
  /** Whether to write about this request if it ends well. The same for all services. */
  isSampled(requestId: string): boolean;
}

/** What {@link createLog} takes. */
export interface LogOptions {
  /** Name of the service, in every line. */
  service: string;
  /** Events below this level are dropped. */
  level: LogLevel;
  /** The share of requests for which {@link Log.isSampled} is true. Default: 1. */
  sample?: number | undefined;
  now: WallNow;
  /** Gets each line; an urgent one must not wait for others. */
  write: (line: Line, isUrgent: boolean) => void;
}

interface EventKind {
  level: LogLevel;
  isUrgent?: boolean;
}

/**
 * Makes a log that writes lines such as
 * `{"time":"2026-11-20T11:00:00.000Z","level":"info","service":"edge-auth","event":"ready"}`.
 * Text that looks like an API key is redacted anywhere in the line, as a last line of
 * defence: callers must not pass one in the first place.
 */
export function createLog(options: LogOptions): Log {
  const { service, level: levelMin, sample = 1, now, write } = options;
  const writer = ({ level, isUrgent = false }: EventKind): WriteEvent => {
    return (event, fields) => {
      const atMs = now();
      write(() => {
        const time = new Date(atMs).toISOString();
        return lineOf({ time, level, service, event }, fields);
      }, isUrgent);
    };
  };
  const rankMin = LOG_LEVELS.indexOf(levelMin);
  const from = (kind: EventKind): WriteEvent =>
    LOG_LEVELS.indexOf(kind.level) < rankMin ? () => {} : writer(kind);
  const sampledMax = sample * REQUEST_ID_HEADS;
  return {
    debug: from({ level: "debug" }),
    info: from({ level: "info" }),
    warn: from({ level: "warn", isUrgent: true }),
    error: from({ level: "error", isUrgent: true }),
    notice: writer({ level: "info", isUrgent: true }),
    isSampled: (requestId) => Number(`0x${requestId.slice(0, 8)}`) < sampledMax,
  };
}

/** The text of a line: errors as plain data, nothing that disturbs a terminal. */
function lineOf(head: LogFields, fields: LogFields = {}): string {
  // Two texts are joined, because a copy of all fields costs more.
  const start = cleanJson(head);
  const rest = cleanJson(withPlainErrors(fields));
  return rest === "{}" ? start : `${start.slice(0, -1)},${rest.slice(1)}`;
}

const cleanJson = (fields: LogFields): string =>
  redactKeys(JSON.stringify(fields).replace(UNPRINTABLE, escaped));

/** The fields themselves if they have no errors, which most do not. */
function withPlainErrors(fields: LogFields): LogFields {
  let plain = fields;
  for (const name in fields) {
    const value = fields[name];
    if (!(value instanceof Error)) continue;
    if (plain === fields) plain = { ...fields };
    plain[name] = describeError(value);
  }
  return plain;
}

/** A text without what looks like an API key, as every line is written. */
export const redactKeys = (text: string): string =>
  text.replace(SECRET_PATTERN, "sk-[redacted]");

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

/** Where lines go: `Deno.stdout` in a service. */
export interface LineSink {
  /** Writes at least one of the bytes; resolves to how many. */
  write(bytes: Uint8Array): Promise<number>;
}

/**
 * Writes lines together, unless one is urgent: a write per line would cost more than
 * the rest of logging it.
 */
export class LineWriter {
  readonly #sink: LineSink;
  readonly #onDropped: (count: number) => void;
  readonly #encoder = new TextEncoder();
  #waiting: Line[] = [];
  #droppedCount = 0;
  /** Settles when the lines that are being written, and those after them, are out. */
  #writing: Promise<void> | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** `onDropped` is called before the next line when lines were lost. */
  constructor(sink: LineSink, onDropped: (count: number) => void) {
    this.#sink = sink;
    this.#onDropped = onDropped;
  }

  /**
   * Queues one line, an urgent one to be written at once. Never blocks, never throws.
   */
  write(line: Line, isUrgent = true): void {
    if (this.#waiting.length >= WAITING_LINES_MAX) {
      this.#droppedCount += 1;
      return;
    }
    this.#waiting.push(line);
    if (isUrgent) void this.#writeNow();
    else this.#timer ??= setTimeout(() => this.#writeNow(), LINE_WAIT_MS);
  }

  /** Resolves when all lines are out. */
  async flush(): Promise<void> {
    while (this.#waiting.length > 0 || this.#writing !== null) {
      await this.#writeNow();
    }
  }

  #writeNow(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#writing ??= this.#writeAll();
    return this.#writing;
  }

  async #writeAll(): Promise<void> {
    await Promise.resolve(); // Waits for the other lines of this turn.
    while (this.#waiting.length > 0) {
      const lines = this.#waiting;
      this.#waiting = [];
      if (this.#droppedCount > 0) {
        this.#onDropped(this.#droppedCount);
        this.#droppedCount = 0;
      }
      const text = lines.map((line) => `${line()}\n`).join("");
      const bytes = this.#encoder.encode(text);
      try {
        for (let offset = 0; offset < bytes.length;) {
          offset += await this.#sink.write(bytes.subarray(offset));
        }
      } catch {
        // The reader is gone; logging must not end the service.
        this.#waiting = [];
      }
    }
    this.#writing = null;
  }
}
