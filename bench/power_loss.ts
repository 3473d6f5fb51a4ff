/**
 * Measures what a loss of power does to acknowledged key changes.
 *
 *     deno run --allow-all bench/power_loss.ts [seconds per mode, default 3]
 *
 * Runs the real key store against a private redis-server while a preloaded
 * library records how much of the append-only file is flushed. Then the server is
 * killed, the file is cut to what was flushed, which is the worst that a loss of
 * power can do to a disk that honours flushes, and the server is started again.
 * Every key with an acknowledged change is looked up: record, look-up by hash,
 * audit entries; changes are of every kind.
 *
 * Prints which promise the server makes (`switched`, `always`, `none`) and exits
 * with 1 when a change was lost under a promise. A user who may not switch gets no
 * promise: the losses there show that this program detects them. Needs gcc. It does
 * not test whether the disk honours flushes.
 */
import { randomBytes } from "@gateway/shared/process/ids";
import { createKeyStore } from "../services/key-admin/domain/keys/key_store.ts";
import {
  changeKeys,
  emptyLedger,
  findLost,
} from "../services/key-admin/key_changes_fixture.ts";
import {
  startRedis,
  type TestRedis,
} from "../services/key-admin/redis_fixture.ts";
import { detectDurability } from "../services/key-admin/domain/store/durability.ts";

const SECONDS = Number(Deno.args[0] ?? 3);
const WRITERS = 32;
/** How many losses are printed. */
const SHOWN = 10;

/** Builds the library. Its path goes into LD_PRELOAD. */
async function buildLibrary(folder: string): Promise<string> {
  const library = `${folder}/power_loss.so`;
  const source = new URL("power_loss.c", import.meta.url).pathname;
  const { code, stderr } = await new Deno.Command("gcc", {
    args: ["-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"],
  }).output();
  if (code !== 0) throw new Error(new TextDecoder().decode(stderr));
  return library;
}

/** Cuts every append-only file to what was flushed. Returns the number of bytes lost. */
function cutToFlushed(folder: string): number {
  const files = `${folder}/appendonlydir`;
  let lost = 0;
  for (const { name } of Deno.readDirSync(files)) {
    if (!name.endsWith(".incr.aof")) continue;
    const path = `${files}/${name}`;
    const flushed = Number(readOrZero(`${path}.flushed`));
    lost += Deno.statSync(path).size - flushed;
    Deno.truncateSync(path, flushed);
  }
  return lost;
}

function readOrZero(path: string): string {
  try {
    return Deno.readTextFileSync(path);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return "0"; // Never flushed.
    throw error;
  }
}

interface Mode {
  fsync: string;
  /** What users have beside all permissions. */
  but?: string;
}

const MODES: readonly Mode[] = [
  { fsync: "always" },
  { fsync: "everysec" },
  { fsync: "everysec", but: "-config|set" },
];

async function tryMode(
  { fsync, but }: Mode,
  library: string,
): Promise<boolean> {
  await using redis = await startRedis(
    ["--appendonly", "yes", "--appendfsync", fsync],
    { LD_PRELOAD: library },
  );
  const store = await openStore(redis);
  if (but !== undefined) {
    await store.link.command(["ACL", "SETUSER", "default", but]);
  }
  const promise = await detectDurability(store.link);
  const ledger = emptyLedger();
  const writers = Array.from(
    { length: WRITERS },
    () => changeKeys(store.keys, ledger, () => false),
  );
  await new Promise((resolve) => setTimeout(resolve, SECONDS * 1_000));
  await redis.kill();
  await Promise.all(writers);
  const cutBytes = cutToFlushed(redis.directory);
  await redis.restart();
  const after = await openStore(redis);
  const { lost, harmless } = await findLost(after.link, after.keys, ledger);
  const isKept = promise === "none" || lost.length === 0;
  const counts = Object.entries(ledger.counts)
    .map(([kind, count]) => `${kind} ${count}`).join(", ");
  print(
    `\nappendfsync ${fsync} ${but ?? ""}, promise "${promise}"\n` +
      `  acknowledged changes: ${counts}\n` +
      `  keys looked up: ${ledger.known.size}; unflushed bytes cut: ${cutBytes}\n` +
      `  records, look-ups and audit logs lost: ${lost.length}` +
      `${
        isKept ? "" : "  PROMISE BROKEN"
      }; dead look-ups left: ${harmless.length}`,
  );
  for (const one of promise === "none" ? [] : lost.slice(0, SHOWN)) {
    print(`  ${one}`);
  }
  return isKept;
}

async function openStore(redis: TestRedis) {
  const [link, writer] = [await redis.connect(), await redis.connect()];
  return { link, keys: createKeyStore({ redis: link, writer, randomBytes }) };
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

const folder = await Deno.makeTempDir({ prefix: "power-loss-" });
try {
  const library = await buildLibrary(folder);
  for (const mode of MODES) {
    if (!(await tryMode(mode, library))) Deno.exitCode = 1;
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
