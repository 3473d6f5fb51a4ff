import { wallNow } from "@gateway/shared/process/clock";
import {
  ConfigError,
  EXIT_CONFIG,
  parseEnv,
} from "@gateway/shared/process/env";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import {
  busAccess,
  NATS_VARIABLES,
  REDIS_VARIABLES,
  redisAccess,
} from "@gateway/shared/process/service_variables";
import { isDenied, RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import { z } from "zod";
import { textOf } from "./cli/answer.ts";
import {
  type Area,
  type CommandDeps,
  CommandRefused,
  helpOf,
  parseCommand,
  UsageError,
} from "./cli/command_line.ts";
import { KEYS } from "./cli/keys.ts";
import { OWNERS } from "./cli/owners.ts";
import { BadCursor } from "./domain/keys/key_page.ts";
import { KeyRefused } from "./domain/keys/key_store.ts";
import { createStopSender } from "./domain/keys/notice.ts";
import { defaultLimitsOf, LIMIT_VARIABLES } from "./domain/keys/settings.ts";
import { detectDurability, NotDurable } from "./domain/store/durability.ts";
import { connectRedis } from "./domain/store/redis.ts";
import { createStores } from "./domain/stores.ts";

/** `deno task keys …` and `deno task owners …`: commands over the stores of the console. */

const CONNECT_MS = 2_000;
/** The cluster that a command works on. */
type Cluster = ReturnType<typeof findCluster>;

const AREAS = new Map<string, Area>([["keys", KEYS], ["owners", OWNERS]]);

const UP_FILE = ".run/up.json";
const CLUSTER_VARIABLES = {
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  ...LIMIT_VARIABLES,
};

const upFile = z.object({
  redis_url: z.string(),
  nats_url: z.string(),
  console_url: z.string(),
});

async function run([name = "", ...args]: string[]): Promise<string> {
  const area = AREAS.get(name);
  if (area === undefined) {
    throw new UsageError("The first word must be keys or owners");
  }
  if (args[0] === "help" || args.includes("--help") || args.includes("-h")) {
    return helpOf(area);
  }
  const command = parseCommand(area, args);
  const cluster = findCluster();
  const redis = await connect(cluster);
  try {
    if (await detectDurability(redis) === "none") {
      printError(
        "Warning: this Redis may lose changes in a power failure " +
          "(set appendonly yes and appendfsync always)",
      );
    }
    const answer = await command.run(depsOf(cluster, redis));
    return command.isJson ? JSON.stringify(answer.json) : textOf(answer);
  } finally {
    await redis.close();
  }
}

/**
 * Finds the cluster: from the service's variables, else from the file that `deno
 * task up` wrote. Throws a `ConfigError` for contradictory variables, and
 * {@link CommandRefused} when neither is there.
 */
function findCluster() {
  const env = Deno.env.toObject();
  const hasAddress = ["REDIS_URL", "REDIS_URL_FILE", "REDIS_SENTINELS"]
    .some((name) => env[name]);
  const up = hasAddress ? null : readUpFile();
  const variables = up === null ? env : {
    ...env,
    REDIS_URL: up.redis_url,
    NATS_URL: env.NATS_URL || up.nats_url,
  };
  const settings = parseEnv(
    CLUSTER_VARIABLES,
    variables,
    Deno.readTextFileSync,
  );
  return {
    redis: redisAccess(settings),
    bus: busAccess(settings),
    /** Origin of the console, for links. */
    consoleUrl: env.PUBLIC_URL || (up?.console_url ?? "http://127.0.0.1:8081"),
    defaultLimits: defaultLimitsOf(settings),
    /** A hint for when Redis does not answer. */
    hint: up === null
      ? "The address comes from REDIS_…: check host, port, user and password"
      : `The address comes from ${UP_FILE}: is "deno task up" still running?`,
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

function depsOf(
  { bus, consoleUrl, defaultLimits }: Cluster,
  redis: RedisLink,
): CommandDeps {
  const now = wallNow;
  const parts = { redis, writer: redis, randomBytes, now, defaultLimits };
  return {
    ...createStores(parts),
    sendStop: createStopSender(bus, silentLog),
    defaultLimits: defaultLimits.key,
    ...{ consoleUrl, now },
  };
}

async function connect({ redis, hint }: Cluster): Promise<RedisLink> {
  const options = { address: redis, log: silentLog, waitMs: CONNECT_MS };
  try {
    return await connectRedis(options);
  } catch (error) {
    if (!(error instanceof RedisUnavailableError)) throw error;
    const { cause, reason } = error;
    const why = cause instanceof Error ? cause.message : "no answer";
    throw new RedisUnavailableError(reason, `${why}\n${hint}`, error);
  }
}

/** The exit codes of expected errors; see {@link EXIT_CODES_HELP}. */
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
  const { message } = error;
  if (isDenied(error)) {
    return { code: 77, text: `The Redis user lacks a permission: ${message}` };
  }
  const [, code] = EXIT_CODES.find(([kind]) => error instanceof kind) ?? [];
  if (code === undefined) throw error;
  const area = AREAS.has(Deno.args[0] ?? "") ? Deno.args[0] : "keys";
  const help = error instanceof UsageError ? `\nHelp: ${area} --help` : "";
  return { code, text: message + help };
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
