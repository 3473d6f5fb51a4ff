import { wallNow } from "@gateway/shared/clock";
import { randomBytes } from "@gateway/shared/ids";
import { silentLog } from "@gateway/shared/log";
import { RedisUnavailableError } from "@gateway/shared/redis/errors";
import { z } from "zod";
import { parseCommandLine, UsageError } from "./cli/arguments.ts";
import {
  type Answer,
  CommandRefused,
  KEYS_HELP,
  runKeysCommand,
} from "./cli/key_commands.ts";
import { createKeyStore } from "./key_store.ts";
import { BadCursor } from "./keys/key_page.ts";
import { createStopSender } from "./notice.ts";
import { createOwnerDirectory } from "./owners/directory.ts";
import { detectDurability, NotDurable } from "./store/durability.ts";
import { connectRedis } from "./store/redis.ts";

/**
 * `deno task keys …`: the console's key lifecycle without the console.
 *
 * Exit codes: 0 done, 1 refused, 2 not understood, 69 redis or its disk away.
 */

const EXIT = { refused: 1, usage: 2, unavailable: 69 } as const;
const CONNECT_MS = 2_000;
const UP_FILE = ".run/up.json";

const upFile = z.object({ redis_url: z.string(), nats_url: z.string() });

/** Where the cluster is: `REDIS_URL` and `NATS_URL`, else what `deno task up` wrote. */
function findServers(): { redisUrl: string; natsUrl: string } {
  const redisUrl = Deno.env.get("REDIS_URL");
  const natsUrl = Deno.env.get("NATS_URL");
  if (redisUrl !== undefined && redisUrl !== "") {
    return { redisUrl, natsUrl: natsUrl || "nats://127.0.0.1:4222" };
  }
  const up = readUpFile();
  return { redisUrl: up.redis_url, natsUrl: natsUrl || up.nats_url };
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

async function run(args: string[]): Promise<string> {
  const [area, ...rest] = args;
  if (area !== "keys") throw new UsageError("The first word is keys");
  const line = parseCommandLine(rest);
  if (line.has("help") || line.words[0] === "help") return KEYS_HELP;
  const { redisUrl, natsUrl } = findServers();
  const redis = await connectRedis({
    url: redisUrl,
    log: silentLog,
    waitMs: CONNECT_MS,
  });
  try {
    const shared = { redis, writer: redis, randomBytes, now: wallNow };
    if (await detectDurability(redis) === "none") {
      printError(
        "Warning: this redis does not keep changes over a loss of power " +
          "(set appendonly yes and appendfsync always)",
      );
    }
    const answer: Answer = await runKeysCommand({
      keys: createKeyStore(shared),
      owners: createOwnerDirectory(shared),
      sendStop: createStopSender(natsUrl),
      now: wallNow,
    }, line);
    return line.has("json") ? JSON.stringify(answer.json) : answer.text;
  } finally {
    await redis.close();
  }
}

function exitCodeOf(error: unknown): number {
  if (error instanceof UsageError || error instanceof BadCursor) {
    return EXIT.usage;
  }
  if (error instanceof RedisUnavailableError || error instanceof NotDurable) {
    return EXIT.unavailable;
  }
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
  const help = error instanceof UsageError ? "\nMore: keys --help" : "";
  printError((error instanceof Error ? error.message : String(error)) + help);
}
