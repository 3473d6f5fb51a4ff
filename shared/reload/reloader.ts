/** When files are read again, and what follows from what they say. */
import type { MonotonicNow, WallNow } from "../process/clock.ts";
import { ConfigError, errorMessage } from "../process/env.ts";
import type { Log, LogFields } from "../process/log.ts";
import type { Reading } from "./reading.ts";

/** The times of a {@link Reloader}. */
export const RELOAD_LIMITS = {
  /** Editors write in pieces: files are read when none has changed for this long, */
  quietMs: 150,
  /** but at the latest this long after the first change. */
  waitMs: 1_000,
  /** How often files are read although no change was noticed. */
  pollMs: 5_000,
  /**
   * A mistake counts if it is still there after this long: a file may be half written.
   */
  confirmMs: 1_000,
} as const;

/** How a reading ended. */
export type ReloadResult = "changed" | "unchanged" | "refused";

/** What is known of the files. */
export interface ReloadState {
  /** When the value in use was read, in Unix ms. */
  readonly readAtMs: number;
  /** Why what the files say now is not in use, one mistake each; none: it is. */
  readonly mistakes: readonly string[];
}

/** What a {@link Reloader} needs. */
export interface ReloaderOptions<Value> {
  reading: Pick<Reading<Value>, "path" | "texts" | "again">;
  /** Rejects if the file cannot be read. */
  readText(path: string): Promise<string>;
  /** The value has changed. Fields that say how are logged. */
  onValue(value: Value): LogFields;
  /** A reading has ended. */
  onResult(result: ReloadResult): void;
  now: MonotonicNow;
  wallNow: WallNow;
  log: Pick<Log, "info" | "notice" | "error">;
}

/**
 * Keeps a value as the files say, from which it is made. If they have mistakes, the
 * last value stays. Must be ticked every 50 to 200 ms.
 */
export class Reloader<Value> {
  readonly #options: ReloaderOptions<Value>;
  /** When the first and the last change was noticed that is not read yet. */
  #noticed: { firstMs: number; lastMs: number } | null = null;
  #isWanted = false;
  #isReading = false;
  #readAtMs: number;
  #nextPollMs: number;
  #mistakes: readonly string[] = [];
  /** Mistakes that do not count yet, and when they will. */
  #doubt: { mistakes: readonly string[]; untilMs: number } | null = null;

  constructor(options: ReloaderOptions<Value>) {
    this.#options = options;
    this.#readAtMs = options.wallNow();
    this.#nextPollMs = options.now() + RELOAD_LIMITS.pollMs;
  }

  /** How things are. */
  get state(): ReloadState {
    return { readAtMs: this.#readAtMs, mistakes: this.#mistakes };
  }

  /** Something has happened to a file. */
  notice(): void {
    const nowMs = this.#options.now();
    this.#noticed = {
      firstMs: this.#noticed?.firstMs ?? nowMs,
      lastMs: nowMs,
    };
  }

  /** Somebody wants the files to be read now, and to hear of mistakes at once. */
  want(): void {
    this.#isWanted = true;
  }

  /** Advances time. Resolves when the files were read, if they were. Never rejects. */
  async tick(): Promise<void> {
    if (this.#isReading || !this.#isDue(this.#options.now())) return;
    this.#isReading = true;
    const isWanted = this.#isWanted;
    this.#isWanted = false;
    this.#noticed = null;
    if (await this.#hasChanged()) this.#read();
    else if (isWanted) this.#unchanged();
    const nowMs = this.#options.now();
    this.#nextPollMs = nowMs + RELOAD_LIMITS.pollMs;
    this.#isReading = false;
    if (isWanted || nowMs >= (this.#doubt?.untilMs ?? Infinity)) {
      this.#refuse();
    }
  }

  #isDue(nowMs: number): boolean {
    const { quietMs, waitMs } = RELOAD_LIMITS;
    const { firstMs = Infinity, lastMs = Infinity } = this.#noticed ?? {};
    return this.#isWanted || nowMs >= this.#nextPollMs ||
      nowMs >= (this.#doubt?.untilMs ?? Infinity) ||
      nowMs - lastMs >= quietMs || nowMs - firstMs >= waitMs;
  }

  /** Whether any of the files says something else than when it was read last. */
  async #hasChanged(): Promise<boolean> {
    const { reading, readText } = this.#options;
    const same = [...reading.texts].map(async ([path, text]) =>
      // Files that cannot be read say nothing.
      text === await readText(path).catch(() => null)
    );
    return (await Promise.all(same)).includes(false);
  }

  #read(): void {
    const { reading, onValue, onResult, wallNow, log } = this.#options;
    try {
      const value = reading.again();
      const fields = onValue(value);
      this.#readAtMs = wallNow();
      this.#mistakes = [];
      this.#doubt = null;
      onResult("changed");
      log.notice("models_read", {
        file: this.#options.reading.path,
        ...fields,
      });
    } catch (error) {
      const mistakes = error instanceof ConfigError
        ? error.mistakes
        : [errorMessage(error)];
      const untilMs = this.#doubt?.untilMs ??
        this.#options.now() + RELOAD_LIMITS.confirmMs;
      this.#doubt = { mistakes, untilMs };
    }
  }

  #unchanged(): void {
    const { onResult, log, now } = this.#options;
    // Whoever asks hears of the mistakes again.
    if (this.#mistakes.length > 0) {
      this.#doubt ??= { mistakes: this.#mistakes, untilMs: now() };
    }
    if (this.#doubt !== null) return;
    onResult("unchanged");
    log.info("models_unchanged", { file: this.#options.reading.path });
  }

  /** What was in doubt is a mistake: the files have said it for long enough. */
  #refuse(): void {
    if (this.#doubt === null) return;
    const { onResult, log } = this.#options;
    const { mistakes } = this.#doubt;
    this.#mistakes = mistakes;
    this.#doubt = null;
    onResult("refused");
    log.error("models_refused", {
      file: this.#options.reading.path,
      mistakes,
      message: "The list of models has mistakes; the previous one stays in use",
    });
  }
}
