import { wallNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import type { RedisLink } from "@gateway/shared/redis/link";
import type { Answer } from "./cli/answer.ts";
import {
  type CommandLine,
  parseCommandLine,
  UsageError,
} from "./cli/arguments.ts";
import { type Cluster, findCluster } from "./cli/cluster.ts";
import { describeFailure, EXIT_CODES_HELP } from "./cli/failure.ts";
import { KEYS_HELP, runKeysCommand } from "./cli/key_commands.ts";
import { OWNERS_HELP, runOwnersCommand } from "./cli/owner_commands.ts";
import { createLinks } from "./console_deps.ts";
import type { DefaultLimits } from "./domain/keys/default_limits.ts";
import { KeyStore } from "./domain/keys/key_store.ts";
import { AuditLog } from "./domain/audit/audit_log.ts";
import { createStopSender } from "./domain/keys/notice.ts";
import { createAccountStore } from "./domain/owners/account.ts";
import { createOwnerDirectory } from "./domain/owners/directory.ts";
import { createOwnerLimits } from "./domain/owners/limits.ts";
import { createSessionStore } from "./domain/sign_in/sessions.ts";
import { detectDurability } from "./domain/store/durability.ts";
import { connectRedis } from "./domain/store/redis.ts";

/**
 * `deno task keys …` and `deno task owners …`: the console's stores without the
 * console. `cli/failure.ts` has the exit codes.
 */

const CONNECT_MS = 2_000;

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
    keys: new KeyStore(parts),
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
    audit: new AuditLog(redis),
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
  if (line.has("help") || line.words[0] === "help") {
    return `${area.help}\n\n${EXIT_CODES_HELP}`;
  }
  const cluster = clusterHere();
  const redis = await connect(cluster);
  try {
    await warnIfNotDurable(redis);
    const answer = await area.run(redis, cluster, line);
    return line.has("json") ? JSON.stringify(answer.json) : answer.text;
  } finally {
    await redis.close();
  }
}

function clusterHere(): Cluster {
  return findCluster(Deno.env.toObject(), Deno.readTextFileSync);
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

async function warnIfNotDurable(redis: RedisLink): Promise<void> {
  if (await detectDurability(redis) !== "none") return;
  printError(
    "Warning: this redis does not keep changes over a loss of power, or does " +
      "not say that it does (set appendonly yes and appendfsync always)",
  );
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
