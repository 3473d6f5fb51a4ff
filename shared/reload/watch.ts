/** Reads files again when they have changed: watches them, and polls behind that. */
import { basename, dirname } from "node:path";
import { monotonicNow, wallNow } from "../process/clock.ts";
import type { ServiceTools } from "../process/lifecycle/service.ts";
import type { LogFields } from "../process/log.ts";
import type { MetricRegistry } from "../process/metrics.ts";
import { readSettingsFileSoon } from "./files.ts";
import { RELOAD_METRICS } from "./metrics.ts";
import type { Reading } from "./reading.ts";
import { RELOAD_LIMITS, Reloader, type ReloadState } from "./reloader.ts";

const TICK_MS = 100;
const MS_PER_SECOND = 1_000;

/** What is read again, and who gets it. */
export interface ReloadOptions<Value> {
  reading: Reading<Value>;
  /** The value has changed. Fields that say how are logged. */
  onValue(value: Value): LogFields;
}

/** What is known of the files. */
export interface Reloading {
  readonly state: ReloadState;
  /** Reads no more. */
  stop(): void;
}

/**
 * Keeps a value as its files say: when one of them changes, every five seconds in case
 * that was missed, and at SIGHUP.
 */
export function startReloading<Value>(
  { reading, onValue }: ReloadOptions<Value>,
  { log, registry, onHangUp }: ServiceTools,
): Reloading {
  const { reloads } = registry.record(RELOAD_METRICS);
  const reloader = new Reloader({
    reading,
    onValue,
    onResult: (result) => reloads.with(result).add(),
    readText: readSettingsFileSoon,
    now: monotonicNow,
    wallNow,
    log,
  });
  observe(registry, reloader);
  onHangUp(() => reloader.want());
  const watches = new Watches(() => reloader.notice());
  watches.follow(reading.texts.keys());
  const timer = setInterval(async () => {
    await reloader.tick();
    watches.follow(reading.texts.keys());
  }, TICK_MS);
  return {
    get state() {
      return reloader.state;
    },
    stop() {
      clearInterval(timer);
      watches.follow([]);
    },
  };
}

function observe(
  registry: MetricRegistry,
  reloader: { readonly state: ReloadState },
): void {
  registry.gauge(
    RELOAD_METRICS.age,
    () => (wallNow() - reloader.state.readAtMs) / MS_PER_SECOND,
  );
  registry.gauge(
    RELOAD_METRICS.refused,
    () => reloader.state.mistakes.length > 0,
  );
}

/** Watches of the directories of files, or of the files where that is not allowed. */
class Watches {
  readonly #onEvent: () => void;
  /** By the paths of the files. */
  readonly #watchers = new Map<string, Deno.FsWatcher>();
  #paths = "";
  /** When to try again what could not be watched. */
  #retryAtMs = Infinity;

  constructor(onEvent: () => void) {
    this.#onEvent = onEvent;
  }

  /**
   * Watches exactly these files, at the latest when it is called once more. Should be
   * called several times a second.
   */
  follow(files: Iterable<string>): void {
    const paths = [...files];
    const nowMs = monotonicNow();
    // They are looked at often, and hardly ever change.
    const isSame = paths.join("\0") === this.#paths;
    if (isSame && nowMs < this.#retryAtMs) return;
    // Deno lets go of a path only later: if it were watched again at once, there would
    // be no more events.
    if (this.#close()) return;
    this.#paths = paths.join("\0");
    this.#retryAtMs = Infinity;
    const directories = Map.groupBy(paths, (path) => dirname(path));
    for (const [directory, members] of directories) {
      // A directory sees files that are replaced, and those that do not exist yet.
      if (this.#watch(directory, members)) continue;
      const isWatched = members.map((path) => this.#watch(path, [path]));
      if (isWatched.includes(false)) {
        this.#retryAtMs = nowMs + RELOAD_LIMITS.pollMs;
      }
    }
  }

  /** Stops watching. Returns whether anything was watched. */
  #close(): boolean {
    const hasWatched = this.#watchers.size > 0;
    for (const watcher of this.#watchers.values()) watcher.close();
    this.#watchers.clear();
    return hasWatched;
  }

  /** Whether a path can be watched. If none can, polling has to do. */
  #watch(path: string, files: readonly string[]): boolean {
    const names = new Set(files.map((file) => basename(file)));
    try {
      const watcher = Deno.watchFs(path, { recursive: false });
      this.#watchers.set(path, watcher);
      // It may have changed while nobody watched it.
      this.#onEvent();
      void this.#listen(path, watcher, names);
      return true;
    } catch {
      return false;
    }
  }

  async #listen(
    path: string,
    watcher: Deno.FsWatcher,
    names: ReadonlySet<string>,
  ): Promise<void> {
    for await (const { kind, paths } of watcher) {
      // Reading them is an access, too.
      if (kind === "access" || !paths.some((each) => concerns(each, names))) {
        continue;
      }
      this.#onEvent();
      // A file that was replaced has no events any more: it is watched anew.
      if (names.has(basename(path))) this.#paths = "";
    }
  }
}

/** Kubernetes replaces the files of a volume by the link `..data`. */
const concerns = (path: string, names: ReadonlySet<string>): boolean =>
  names.has(basename(path)) || basename(path).startsWith("..");
