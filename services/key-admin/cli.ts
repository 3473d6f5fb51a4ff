import { wallNow } from "@gateway/shared/process/clock";
import { ConfigError, EXIT_CONFIG } from "@gateway/shared/process/env";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisAddress, RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { textOf } from "./cli/answer.ts";
import {
  CommandRefused,
  parseCommand,
  UsageError,
} from "./cli/command_line.ts";
import { KEYS } from "./cli/keys.ts";
import { OWNERS } from "./cli/owners.ts";
import { configFrom } from "./config.ts";
import { BadCursor } from "./domain/keys/key_page.ts";
import { KeyRefused } from "./domain/keys/key_store.ts";
import { createStopSender } from "./domain/keys/notice.ts";
import { detectDurability, NotDurable } from "./domain/store/durability.ts";
import { connectRedis } from "./domain/store/redis.ts";
import { createStores } from "./domain/stores.ts";

/** `deno task keys …` and `deno task owners …`: commands over the stores of the console. */

const CONNECT_MS = 2_000;

const UP_FILE = ".run/up.json";
const upFile = z.object({
  redis_url: z.string(),
  nats_url: z.string(),
  console_url: z.string(),
});

async function run(args: string[]): Promise<string> {
  const command = parseCommand({ keys: KEYS, owners: OWNERS }, args);
  if (typeof command === "string") return command;
  const { config, hint } = findCluster();
  const { defaultLimits, bus, port } = config;
  const redis = await connect(config.redis, hint);
  try {
    if (await detectDurability(redis) === "none") {
      printError(
        "Warning: this Redis may lose changes in a power failure " +
          "(set appendonly yes and appendfsync always)",
      );
    }
    const deps = { randomBytes, now: wallNow, defaultLimits };
    const answer = await command.run({
      ...createStores({ redis, writer: redis, ...deps }),
      ...deps,
      sendStop: createStopSender(bus, silentLog),
      publicUrl: config.publicUrl ?? new URL(`http://127.0.0.1:${port}`),
    });
    return command.isJson ? JSON.stringify(answer.json) : textOf(answer);
  } finally {
    await redis.close();
  }
}

/**
 * Finds the cluster: from the service's variables, else from the file that `deno
 * task up` wrote. Throws a `ConfigError` for invalid variables, and
 * {@link CommandRefused} when neither is there. The hint is for when Redis does not
 * answer.
 */
function findCluster() {
  const env = Deno.env.toObject();
  if (env.REDIS_URL || env.REDIS_URL_FILE || env.REDIS_SENTINELS) {
    return {
      config: configFrom(env, Deno.readTextFileSync),
      hint:
        "The address comes from REDIS_…: check host, port, user and password",
    };
  }
  const up = readUpFile();
  const variables = {
    ...env,
    REDIS_URL: up.redis_url,
    NATS_URL: up.nats_url,
    PUBLIC_URL: env.PUBLIC_URL || up.console_url,
  };
  return {
    config: configFrom(variables, Deno.readTextFileSync),
    hint: `The address comes from ${UP_FILE}: is "deno task up" still running?`,
  };
}

function readUpFile() {
  try {
    return upFile.parse(JSON.parse(Deno.readTextFileSync(UP_FILE)));
  } catch (cause) {
    throw new CommandRefused(
      `No cluster is running here: start one with "npx -y deno task up", or set REDIS_URL`,
      { cause },
    );
  }
}

async function connect(
  address: RedisAddress,
  hint: string,
): Promise<RedisLink> {
  try {
    return await connectRedis({ address, log: silentLog, waitMs: CONNECT_MS });
  } catch (error) {
    if (!(error instanceof RedisUnavailableError)) throw error;
    const { cause, reason } = error;
    const why = cause instanceof Error ? cause.message : "no answer";
    throw new RedisUnavailableError(reason, `${why}\n${hint}`, error);
  }
}

/** The exit codes of expected errors; see `EXIT_CODES_HELP`. */
const EXIT_CODES = [
  [CommandRefused, 1],
  [KeyRefused, 1],
  [UsageError, 2],
  [BadCursor, 2],
  [RedisUnavailableError, 69],
  [NotDurable, 69],
  [ConfigError, EXIT_CONFIG],
] as const;

/** The exit code and the text for stderr. Rethrows an unexpected error. */
function describeFailure(error: unknown): { code: number; text: string } {
  if (!(error instanceof Error)) throw error;
  const { message: text } = error;
  if (isDenied(error)) {
    return { code: 77, text: `The Redis user lacks a permission: ${text}` };
  }
  const [, code] = EXIT_CODES.find(([kind]) => error instanceof kind) ?? [];
  if (code === undefined) throw error;
  return { code, text };
}

function printError(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
}

try {
  const text = await run(Deno.args);
  await Deno.stdout.write(new TextEncoder().encode(`${text}\n`));
} catch (error) {
  const { code, text } = describeFailure(error);
  Deno.exitCode = code;
  printError(text);
}
