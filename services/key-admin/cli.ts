import { wallNow } from "@gateway/shared/clock";
import { randomBytes } from "@gateway/shared/ids";
import { ConfigError, EXIT_CONFIG, parseEnv } from "@gateway/shared/env";
import { silentLog } from "@gateway/shared/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisAddress, RedisLink } from "@gateway/shared/redis/link";
import {
  NATS_VARIABLES,
  REDIS_VARIABLES,
} from "@gateway/shared/service_variables";
import {
  type BusAccess,
  busAccess,
  redisAccess,
} from "@gateway/shared/store_access";
import { z } from "zod";
import { type Answer, CommandRefused } from "./cli/answer.ts";
import {
  type CommandLine,
  parseCommandLine,
  UsageError,
} from "./cli/arguments.ts";
import { KEYS_HELP, runKeysCommand } from "./cli/key_commands.ts";
import { OWNERS_HELP, runOwnersCommand } from "./cli/owner_commands.ts";
import { defaultLimitsOf, LIMIT_VARIABLES } from "./config.ts";
import { createLinks } from "./console_deps.ts";
import type { DefaultLimits } from "./default_limits.ts";
import { createKeyStore } from "./key_store.ts";
import { createAuditLog } from "./keys/audit_log.ts";
import { BadCursor } from "./keys/key_page.ts";
import { createStopSender } from "./notice.ts";
import { createAccountStore } from "./owners/account.ts";
import { createOwnerDirectory } from "./owners/directory.ts";
import { createOwnerLimits } from "./owners/limits.ts";
import { createSessionStore } from "./sign_in/sessions.ts";
import { detectDurability, NotDurable } from "./store/durability.ts";
import { connectRedis } from "./store/redis.ts";

/**
 * `deno task keys …` and `deno task owners …`: the console's stores without the
 * console.
 *
 * Exit codes: 0 done, 1 refused, 2 not understood, 69 redis or its disk away,
 * 78 the environment is wrong.
 */

const EXIT = { refused: 1, usage: 2, unavailable: 69 } as const;
const CONNECT_MS = 2_000;
const UP_FILE = ".run/up.json";
const CLUSTER_VARIABLES = {
  ...NATS_VARIABLES,
  ...REDIS_VARIABLES,
  ...LIMIT_VARIABLES,
} as const;

const upFile = z.object({
  redis_url: z.string(),
  nats_url: z.string(),
  console_url: z.string(),
});

interface Cluster {
  redis: RedisAddress;
  bus: BusAccess;
  consoleUrl: string;
  defaultLimits: DefaultLimits;
}

/**
 * Where the cluster is: the variables of the service, else what `deno task up`
 * wrote. Throws a `ConfigError` for variables that do not fit together.
 */
function findCluster(): Cluster {
  const env = Deno.env.toObject();
  const isTold = [env.REDIS_URL, env.REDIS_URL_FILE, env.REDIS_SENTINELS]
    .some((value) => value !== undefined && value !== "");
  const up = isTold ? undefined : readUpFile();
  const settings = parseEnv(CLUSTER_VARIABLES, {
    ...env,
    ...(up === undefined ? {} : {
      REDIS_URL: up.redis_url,
      NATS_URL: env.NATS_URL || up.nats_url,
    }),
  }, Deno.readTextFileSync);
  return {
    redis: redisAccess(settings, Deno.readTextFileSync),
    bus: busAccess(settings),
    consoleUrl: env.PUBLIC_URL || (up?.console_url ?? "http://127.0.0.1:8081"),
    defaultLimits: defaultLimitsOf(settings),
  };
}

function readUpFile(): z.infer<typeof upFile> {
  try {
    return upFile.parse(JSON.parse(Deno.readTextFileSync(UP_FILE)));
  } catch (cause) {
    throw new CommandRefused(
      `No cluster runs here: start one with "deno task up", or set REDIS_URL`,
      { cause },
    );
  }
}

type Run = (
  redis: RedisLink,
  cluster: Cluster,
  line: CommandLine,
) => Promise<Answer>;

const AREAS: ReadonlyMap<string, { help: string; run: Run }> = new Map([
  ["keys", { help: KEYS_HELP, run: keys }],
  ["owners", { help: OWNERS_HELP, run: owners }],
]);

function keys(
  redis: RedisLink,
  { bus, defaultLimits }: Cluster,
  line: CommandLine,
): Promise<Answer> {
  const parts = partsOf(redis, defaultLimits);
  return runKeysCommand({
    keys: createKeyStore(parts),
    owners: createOwnerDirectory(parts),
    sendStop: createStopSender(bus, silentLog),
    defaultLimits: defaultLimits.key,
    now: wallNow,
  }, line);
}

function owners(
  redis: RedisLink,
  { consoleUrl, defaultLimits }: Cluster,
  line: CommandLine,
): Promise<Answer> {
  const parts = partsOf(redis, defaultLimits);
  return runOwnersCommand({
    owners: createOwnerDirectory(parts),
    accounts: createAccountStore(parts),
    links: createLinks(parts),
    sessions: createSessionStore(parts),
    limits: createOwnerLimits(parts),
    audit: createAuditLog(redis),
    consoleUrl,
  }, line);
}

/** What the stores are made of. */
function partsOf(redis: RedisLink, defaultLimits: DefaultLimits) {
  return { redis, writer: redis, randomBytes, now: wallNow, defaultLimits };
}

async function run([name, ...args]: string[]): Promise<string> {
  const area = AREAS.get(name ?? "");
  if (area === undefined) {
    throw new UsageError("The first word is keys or owners");
  }
  const line = parseCommandLine(args);
  if (line.has("help") || line.words[0] === "help") return area.help;
  const cluster = findCluster();
  const redis = await connectRedis({
    address: cluster.redis,
    log: silentLog,
    waitMs: CONNECT_MS,
  });
  try {
    await warnIfNotDurable(redis);
    const answer = await area.run(redis, cluster, line);
    return line.has("json") ? JSON.stringify(answer.json) : answer.text;
  } finally {
    await redis.close();
  }
}

async function warnIfNotDurable(redis: RedisLink): Promise<void> {
  if (await detectDurability(redis) !== "none") return;
  printError(
    "Warning: this redis does not keep changes over a loss of power " +
      "(set appendonly yes and appendfsync always)",
  );
}

function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError || error instanceof BadCursor) {
    return EXIT.usage;
  }
  if (error instanceof RedisUnavailableError || error instanceof NotDurable) {
    return EXIT.unavailable;
  }
  if (error instanceof ConfigError) return EXIT_CONFIG;
  if (error instanceof CommandRefused) return EXIT.refused;
  throw error;
}

function printError(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
}

try {
  const text = await run(Deno.args);
  await Deno.stdout.write(new TextEncoder().encode(`${text}\n`));
} catch (error) {
  Deno.exitCode = exitCodeOf(error);
  const help = error instanceof UsageError ? "\nMore: --help" : "";
  printError((error instanceof Error ? error.message : String(error)) + help);
}
