import { wallNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import { type Cluster, findCluster } from "./cli/cluster.ts";
import { parseCommandLine, UsageError } from "./cli/command_line.ts";
import { describeFailure, EXIT_CODES_HELP } from "./cli/failure.ts";
import { type KeyCommandDeps, KEYS_HELP, runKeysCommand } from "./cli/keys.ts";
import {
  type OwnerCommandDeps,
  OWNERS_HELP,
  runOwnersCommand,
} from "./cli/owners.ts";
import { AuditLog } from "./domain/audit/audit_log.ts";
import { KeyStore } from "./domain/keys/key_store.ts";
import { createStopSender } from "./domain/keys/notice.ts";
import { AccountStore } from "./domain/owners/account.ts";
import { OwnerDirectory } from "./domain/owners/directory.ts";
import { createLinks } from "./domain/sign_in/links.ts";
import { SessionStore } from "./domain/sign_in/sessions.ts";
import { detectDurability } from "./domain/store/durability.ts";
import { connectRedis } from "./domain/store/redis.ts";

/** `deno task keys …` and `deno task owners …`: the console's stores without the console. */

const CONNECT_MS = 2_000;
const AREAS = new Map([
  ["keys", { help: KEYS_HELP, run: runKeysCommand }],
  ["owners", { help: OWNERS_HELP, run: runOwnersCommand }],
]);

async function run([name = "", ...args]: string[]): Promise<string> {
  const area = AREAS.get(name);
  if (area === undefined) {
    throw new UsageError("The first word must be keys or owners");
  }
  const line = parseCommandLine(args);
  if (line.options.help || line.words[0] === "help") {
    return `${area.help}\n\n${EXIT_CODES_HELP}`;
  }
  const cluster = clusterHere();
  const redis = await connect(cluster);
  try {
    if (await detectDurability(redis) === "none") {
      printError(
        "Warning: this Redis may lose changes in a power failure " +
          "(set appendonly yes and appendfsync always)",
      );
    }
    const { json, text } = await area.run(depsOf(cluster, redis), line);
    return line.options.json ? JSON.stringify(json) : text;
  } finally {
    await redis.close();
  }
}

function clusterHere(): Cluster {
  return findCluster(Deno.env.toObject(), Deno.readTextFileSync);
}

function depsOf(
  { bus, consoleUrl, defaultLimits }: Cluster,
  redis: RedisLink,
): KeyCommandDeps & OwnerCommandDeps {
  const now = wallNow;
  const parts = { redis, writer: redis, randomBytes, now, defaultLimits };
  return {
    keys: new KeyStore(parts),
    owners: new OwnerDirectory(parts),
    accounts: new AccountStore(parts),
    sessions: new SessionStore(parts),
    links: createLinks(parts),
    audit: new AuditLog(redis),
    sendStop: createStopSender(bus, silentLog),
    defaultLimits: defaultLimits.key,
    consoleUrl,
    now,
  };
}

async function connect({ redis, whereFrom }: Cluster): Promise<RedisLink> {
  const options = { address: redis, log: silentLog, waitMs: CONNECT_MS };
  try {
    return await connectRedis(options);
  } catch (error) {
    if (!(error instanceof RedisUnavailableError)) throw error;
    const why = error.cause instanceof Error ? error.cause.message : "";
    throw new RedisUnavailableError(
      error.reason,
      `${why || `no answer within ${CONNECT_MS} ms`}\n${whereFrom}`,
      error,
    );
  }
}

function printError(text: string): void {
  Deno.stderr.writeSync(new TextEncoder().encode(`${text}\n`));
}

try {
  const text = await run(Deno.args);
  await Deno.stdout.write(new TextEncoder().encode(`${text}\n`));
} catch (error) {
  const failure = describeFailure(error, Deno.args[0] ?? "");
  if (failure === null) throw error;
  Deno.exitCode = failure.exitCode;
  printError(failure.text);
}
