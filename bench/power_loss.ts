/**
 * Measures what a loss of power does to acknowledged key changes. Needs gcc.
 *
 *     deno run --allow-all bench/power_loss.ts [seconds per mode, default 3]
 *
 * A preloaded library records how much of the append-only file a redis-server has
 * flushed. The server is killed, and the file cut to that: the worst that a loss of
 * power can do to a disk that honours flushes. Exits with 1 when a change was lost
 * under a promise. A user who may not switch `appendfsync` gets none: the losses there
 * show that this program detects them.
 */
import { randomBytes } from "@gateway/shared/process/ids";
import { KeyStore } from "../services/key-admin/domain/keys/key_store.ts";
import {
  changeKeys,
  findLost,
  Ledger,
} from "../services/key-admin/key_changes_fixture.ts";
import {
  startRedis,
  type TestRedis,
} from "../services/key-admin/redis_fixture.ts";
import { detectDurability } from "../services/key-admin/domain/store/durability.ts";
import { sleep } from "../tests/support/wait_for.ts";
import { print, runProcess } from "../tests/support/process.ts";

const SECONDS = Number(Deno.args[0] ?? 3);
const WRITERS = 32;
/** How many losses are printed. */
const SHOWN = 10;

/**
 * Cuts every append-only file to what was flushed. Returns the number of bytes lost.
 */
async function cutToFlushed(folder: string): Promise<number> {
  const files = `${folder}/appendonlydir`;
  let lost = 0;
  for await (const { name } of Deno.readDir(files)) {
    if (!name.endsWith(".incr.aof")) continue;
    const path = `${files}/${name}`;
    // There is no note of a file that was never flushed.
    const note = await Deno.readTextFile(`${path}.flushed`).catch(() => "0");
    const flushed = Number(note);
    lost += (await Deno.stat(path)).size - flushed;
    await Deno.truncate(path, flushed);
  }
  return lost;
}

/** How Redis flushes, and what users have beside all permissions. */
const MODES = [["always"], ["everysec"], ["everysec", "-config|set"]];

async function tryMode([fsync = "", but = ""]: string[], library: string) {
  await using redis = await startRedis(
    ["--appendonly", "yes", "--appendfsync", fsync],
    { LD_PRELOAD: library },
  );
  // As two processes, of which one may switch back while the other one flushes.
  const [store, other] = [await openStore(redis), await openStore(redis)];
  if (but) await store.link.command(["ACL", "SETUSER", "default", but]);
  const promise = await detectDurability(store.link);
  const ledger = new Ledger();
  const writers = Array.from(
    { length: WRITERS },
    (_, n) => changeKeys((n % 2 ? store : other).keys, ledger, () => false),
  );
  await sleep(SECONDS * 1_000);
  await redis.kill();
  await Promise.all(writers);
  const cutBytes = await cutToFlushed(redis.directory);
  await redis.restart();
  const after = await openStore(redis);
  const { lost, harmless } = await findLost(after.link, after.keys, ledger);
  const counts = Object.entries(ledger.counts)
    .map(([kind, count]) => `${kind} ${count}`).join(", ");
  print(`
appendfsync ${fsync} ${but}, promise "${promise}"
  acknowledged changes: ${counts}
  keys looked up: ${ledger.keys.size}; unflushed bytes cut: ${cutBytes}
  records, look-ups and audit logs lost: ${lost.length}
  dead look-ups left: ${harmless.length}`);
  if (promise === "none" || lost.length === 0) return;
  print(`  PROMISE BROKEN\n  ${lost.slice(0, SHOWN).join("\n  ")}`);
  Deno.exitCode = 1;
}

async function openStore(redis: TestRedis) {
  const [link, writer] = [await redis.connect(), await redis.connect()];
  return { link, keys: new KeyStore({ redis: link, writer, randomBytes }) };
}

const folder = await Deno.makeTempDir({ prefix: "power-loss-" });
try {
  const library = `${folder}/power_loss.so`;
  const source = new URL("power_loss.c", import.meta.url).pathname;
  const flags = ["-shared", "-fPIC", "-O2", "-ldl"];
  await runProcess("gcc", [...flags, "-o", library, source]);
  for (const mode of MODES) await tryMode(mode, library);
} finally {
  await Deno.remove(folder, { recursive: true });
}
