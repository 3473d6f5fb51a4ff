import type { Program } from "./child.ts";
import { probeNats } from "./nats_probe.ts";
import { redisCall } from "./redis_call.ts";
import type { Unit } from "./supervise.ts";

/** A private server, where it answers and how to run it. */
export interface Store {
  url: string;
  unit: Unit;
}

const LOOPBACK = "127.0.0.1";
const PROBE_MS = 1_000;
const NATS_READY_MS = 10_000;
/** A large append-only file takes a while to load. */
const REDIS_READY_MS = 120_000;

/** What a private NATS server is told beyond its defaults. */
export function natsConfig(port: number): string {
  return [
    `host: ${LOOPBACK}`,
    `port: ${port}`,
    "max_payload: 1MB",
    // A client that stops reading would otherwise hold up those that write to it
    // for up to 10 s.
    'write_deadline: "2s"',
    "",
  ].join("\n");
}

/** A NATS server of our own on a free loopback port. Its configuration must be in `configFile`, see {@link natsConfig}. */
export function natsStore(
  path: string,
  port: number,
  configFile: string,
  base: Omit<Program, "file" | "args">,
): Store {
  const url = `nats://${LOOPBACK}:${port}`;
  return {
    url,
    unit: {
      name: "nats",
      service: "nats",
      kind: "store",
      program: () => ({ ...base, file: path, args: ["-c", configFile] }),
      marker: () => configFile,
      probe: () => succeeds(() => probeNats(url, PROBE_MS)),
      readyMs: NATS_READY_MS,
    },
  };
}

/**
 * A Redis server of our own on a free loopback port, with its data in `base.cwd`.
 * Key changes must survive power loss, so every write is on disk before it is answered.
 */
export function redisStore(
  path: string,
  port: number,
  base: Omit<Program, "file" | "args">,
): Store {
  const url = `redis://${LOOPBACK}:${port}`;
  const settings: { [name: string]: string } = {
    bind: LOOPBACK,
    port: String(port),
    appendonly: "yes",
    appendfsync: "always",
    save: "",
    // Losing keys silently would be worse than an error.
    "maxmemory-policy": "noeviction",
    daemonize: "no",
  };
  const args = Object.entries(settings)
    .flatMap(([name, value]) => [`--${name}`, value]);
  return {
    url,
    unit: {
      name: "redis",
      service: "redis",
      kind: "store",
      program: () => ({ ...base, file: path, args }),
      // Redis replaces its command line by its address.
      marker: () => `${LOOPBACK}:${port}`,
      probe: () => succeeds(() => redisCall({ url }, [["PING"]], PROBE_MS)),
      readyMs: REDIS_READY_MS,
    },
  };
}

async function succeeds(probe: () => Promise<unknown>): Promise<boolean> {
  try {
    await probe();
    return true;
  } catch {
    // Refused, or still loading its data: asked again until the deadline.
    return false;
  }
}

/** Major and minor number out of `Redis server v=7.0.15 sha=…`; 0.0 when it does not say. */
export async function readRedisVersion(
  path: string,
): Promise<[number, number]> {
  const output = await new Deno.Command(path, {
    args: ["--version"],
    stdin: "null",
    stderr: "null",
  }).output();
  const text = new TextDecoder().decode(output.stdout);
  const [, major, minor] = /v=(\d+)\.(\d+)/.exec(text) ?? [];
  return [Number(major ?? 0), Number(minor ?? 0)];
}

/** The version the scripts in Redis are tested with. */
export const REDIS_TESTED: readonly [number, number] = [7, 0];
