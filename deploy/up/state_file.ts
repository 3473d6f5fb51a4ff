import { removeFile, writePrivateFile } from "./private_file.ts";

/**
 * What `.run/up.json` says while the cluster runs, for scripts and tests:
 * everything needed to call it and to look inside.
 */
export interface UpState {
  /** Pid of the launcher: SIGTERM to it stops everything. */
  pid: number;
  /** Of the first edge, without a path: `http://127.0.0.1:8080`. */
  edge_url: string;
  edge_urls: string[];
  console_url: string;
  /** One-time link that creates the first owner; null once it has been used. */
  setup_url: string | null;
  /** Null when there is no first key that works. */
  api_key: string | null;
  nats_url: string;
  redis_url: string;
  /** Health, readiness and metrics, by service. */
  ops_urls: { [service: string]: string[] };
  /** By service: `edge-auth`, `chat-worker`, `key-admin`, `nats`, `redis`; empty for a server that is not ours. */
  pids: { [service: string]: number[] };
}

/** Keeps the state file up to date. Holds a key, so only its owner may read it. */
export interface StateFile {
  write(state: UpState): Promise<void>;
  remove(): Promise<void>;
}

/** A state file whose writes are serialised; after `remove` it stays away. */
export function createStateFile(path: string): StateFile {
  let last: Promise<void> = Promise.resolve();
  let isRemoved = false;
  const next = (step: () => Promise<void>): Promise<void> => {
    const result = last.then(step);
    // The caller hears of a failure; the next write is tried all the same.
    last = result.catch(() => {});
    return result;
  };
  return {
    write: (state) =>
      next(async () => {
        if (isRemoved) return;
        await writePrivateFile(path, `${JSON.stringify(state, null, 2)}\n`);
      }),
    remove: () =>
      next(async () => {
        isRemoved = true;
        await removeFile(path);
      }),
  };
}
