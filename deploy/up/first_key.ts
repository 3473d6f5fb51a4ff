import { hashKeyValue } from "@gateway/shared/keys/key";
import { hashKey, KEY_FIELDS, recordKey } from "@gateway/shared/keys/record";
import type { WallNow } from "@gateway/shared/process/clock";
import type { RedisAddress } from "@gateway/shared/redis/link";
import type { Program } from "./child.ts";
import type { Guardian } from "./guardian.ts";
import { parseRecord } from "./json.ts";
import { readFileIfAny, writePrivateFile } from "./private_file.ts";
import { redisCall, redisEndpoint } from "./redis_call.ts";
import { messageOf } from "./up_error.ts";

/** The key to show, and what is wrong with it if something is. */
export interface FirstKey {
  /** Absent when there is none that works. */
  key?: string;
  isNew: boolean;
  /** For the operator. */
  note?: string;
}

export interface FirstKeyDeps {
  dataDir: string;
  redis: RedisAddress;
  /** True where the launcher runs Redis itself. */
  isPrivateRedis: boolean;
  /** Creates a key, see `createKeyProgram`. */
  create: Program;
  guardian: Guardian;
  /** Ends the creation. */
  stopping: AbortSignal;
  wallNow: WallNow;
}

export const FIRST_KEY_DESCRIPTION = "First key";

const TIMEOUT_MS = 3_000;
const ERROR_LINES = 5;
const HOW_TO_CREATE =
  `make one with: npx -y deno task keys create --description "My key"`;

/**
 * Creates a key on the first run and shows the same one on later runs, as long
 * as it works. A key somebody deleted is not replaced: that was a decision.
 * Never rejects: a gateway without this key is still a gateway.
 */
export async function provideFirstKey(deps: FirstKeyDeps): Promise<FirstKey> {
  try {
    const file = keyFile(deps);
    const known = await readKey(file);
    if (known !== undefined) return await checkKey(known, deps);
    const created = await createKey(deps);
    await writePrivateFile(file, `${JSON.stringify(created)}\n`);
    return { key: created.key, isNew: true };
  } catch (error) {
    return {
      isNew: false,
      note: `No key: ${messageOf(error)}\n  ${HOW_TO_CREATE}`,
    };
  }
}

/** One file per Redis: a key of one means nothing to another. */
function keyFile({ dataDir, isPrivateRedis, redis }: FirstKeyDeps): string {
  if (isPrivateRedis) return `${dataDir}/first_key.json`;
  const { hostname, port } = redisEndpoint(redis);
  const name = `${hostname}_${port}${new URL(redis.url).pathname}`;
  return `${dataDir}/first_key.${name.replaceAll(/[^\w.-]/g, "_")}.json`;
}

async function readKey(file: string): Promise<string | undefined> {
  const { key } = parseRecord(await readFileIfAny(file) ?? "") ?? {};
  return typeof key === "string" ? key : undefined;
}

async function checkKey(key: string, deps: FirstKeyDeps): Promise<FirstKey> {
  const hash = hashKeyValue(key);
  const [found] = await redisCall(
    deps.redis,
    [["GET", hashKey(hash)]],
    TIMEOUT_MS,
  );
  if (typeof found !== "string") {
    return {
      isNew: false,
      note: `The first key was deleted; ${HOW_TO_CREATE}`,
    };
  }
  const [keyId = "", ownerId = ""] = found.split(":");
  const { state, expiresAtMs } = KEY_FIELDS;
  const [fields] = await redisCall(deps.redis, [
    ["HMGET", recordKey({ keyId, ownerId }), state, expiresAtMs],
  ], TIMEOUT_MS);
  const [stateNow, expiry] = Array.isArray(fields) ? fields : [];
  if (stateNow !== "enabled") {
    const note =
      `The first key is ${stateNow}; to use it: npx -y deno task keys enable ${keyId}`;
    return { isNew: false, note };
  }
  if (Number(expiry) > 0 && Number(expiry) <= deps.wallNow()) {
    return { isNew: false, note: `The first key expired; ${HOW_TO_CREATE}` };
  }
  return { key, isNew: false };
}

async function createKey(
  deps: FirstKeyDeps,
): Promise<{ id: string; key: string }> {
  const output = await runCreate(deps);
  const { id, key } = parseRecord(output) ?? {};
  if (typeof id !== "string" || typeof key !== "string") {
    throw new Error("creating it printed no key");
  }
  return { id, key };
}

/** Runs the command line of keys. Its standard output is the key, so it goes into no log. */
async function runCreate(deps: FirstKeyDeps): Promise<string> {
  const { file, args, env, cwd } = deps.create;
  const process = new Deno.Command(file, {
    args: [...args],
    env: { ...env },
    clearEnv: true,
    cwd,
    detached: true,
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    signal: deps.stopping,
  }).spawn();
  deps.guardian.add(process.pid, "service");
  const { code, stdout, stderr } = await process.output();
  deps.guardian.remove(process.pid);
  const decoder = new TextDecoder();
  if (code === 0) return decoder.decode(stdout);
  const words = decoder.decode(stderr).trim().split("\n").slice(-ERROR_LINES);
  throw new Error(
    `creating one ended with exit code ${code}\n` +
      words.map((line) => `  ${line}`).join("\n"),
  );
}
