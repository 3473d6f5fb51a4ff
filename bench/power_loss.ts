/**
 * What a loss of power does to acknowledged key changes.
 *
 *     deno run --allow-all bench/power_loss.ts [seconds per mode, default 3]
 *
 * Runs the real key store against a private redis-server while a preloaded
 * library notes how much of the append-only file is flushed. Then the server is
 * killed, the file is cut to what was flushed, which is the worst that a loss of
 * power can do to a disk that honours flushes, and the server is started again.
 * Every acknowledged change is looked up.
 *
 * Says which promise the server makes (`waitaof`, `always`, `none`) and ends
 * with 1 when a change was lost under a promise. Mode `everysec` on a server
 * without WAITAOF promises nothing: its losses show that this harness sees them.
 * Needs gcc. It cuts files; it does not test whether the disk tells the truth.
 */
import { randomBytes } from "@gateway/shared/ids";
import { UNLIMITED } from "@gateway/shared/keys/record";
import {
  createKeyStore,
  type KeyStore,
} from "../services/key-admin/key_store.ts";
import {
  startRedis,
  type TestRedis,
} from "../services/key-admin/redis_fixture.ts";
import { detectDurability } from "../services/key-admin/store/durability.ts";

const SECONDS = Number(Deno.args[0] ?? 3);
const WRITERS = 32;
const OWNER = "own_AAAAAAAAAAAAAAAAAAAA";
const ACTOR = { by: "power_loss", ip: "" };

const FATES = ["enabled", "disabled", "deleted"] as const;
type State = typeof FATES[number];

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

/** Changes keys until the server dies; remembers only what was acknowledged. */
async function write(
  store: KeyStore,
  acknowledged: Map<string, State>,
  isOver: () => boolean,
): Promise<void> {
  try {
    while (!isOver()) {
      const made = await store.create({
        ownerId: OWNER,
        settings: {
          description: "A key",
          scopes: ["chat"],
          models: [],
          limits: UNLIMITED,
          expiresAtMs: null,
        },
        actor: ACTOR,
      });
      if (!made.ok) throw new Error(made.reason);
      const keyId = made.key.id;
      const target = { ownerId: OWNER, keyId, version: null, actor: ACTOR };
      // Until a change is acknowledged, its key may be found in either state.
      const fate = FATES[made.key.createdAtMs % FATES.length];
      if (fate === "disabled" && !(await store.disable(target)).ok) continue;
      if (fate === "deleted" && !(await store.delete(target)).ok) continue;
      if (fate !== undefined) acknowledged.set(keyId, fate);
    }
  } catch {
    // The server was killed under this writer: what it had not acknowledged does not count.
  }
}

/** Cuts every append-only file to what was flushed. Gives the bytes that were lost. */
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

async function countLost(
  redis: TestRedis,
  acknowledged: ReadonlyMap<string, State>,
): Promise<number> {
  const link = await redis.connect();
  const store = createKeyStore({ redis: link, writer: link, randomBytes });
  let lost = 0;
  for (const [keyId, state] of acknowledged) {
    const now = (await store.get(OWNER, keyId))?.state ?? "deleted";
    if (now !== state) lost++;
  }
  return lost;
}

async function tryMode(fsync: string, library: string): Promise<boolean> {
  await using redis = await startRedis({
    settings: ["--appendonly", "yes", "--appendfsync", fsync],
    env: { LD_PRELOAD: library },
  });
  const link = await redis.connect();
  const writer = await redis.connect();
  const promise = await detectDurability(writer);
  const acknowledged = new Map<string, State>();
  const endMs = performance.now() + SECONDS * 1_000;
  const isOver = () => performance.now() > endMs + 1_000;
  const store = createKeyStore({ redis: link, writer, randomBytes });
  const writers = Array.from(
    { length: WRITERS },
    () => write(store, acknowledged, isOver),
  );
  await new Promise((resolve) => setTimeout(resolve, SECONDS * 1_000));
  await redis.kill();
  await Promise.all(writers);
  const cutBytes = cutToFlushed(redis.folder);
  await redis.restart();
  const lost = await countLost(redis, acknowledged);
  const isKept = promise === "none" || lost === 0;
  print(
    `appendfsync ${fsync.padEnd(8)} promise ${promise.padEnd(7)} ` +
      `acknowledged ${acknowledged.size}  unflushed bytes cut ${cutBytes}  ` +
      `lost ${lost}${isKept ? "" : "  PROMISE BROKEN"}`,
  );
  return isKept;
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

const folder = await Deno.makeTempDir({ prefix: "power-loss-" });
try {
  const library = await buildLibrary(folder);
  for (const fsync of ["always", "everysec"]) {
    if (!(await tryMode(fsync, library))) Deno.exitCode = 1;
  }
} finally {
  await Deno.remove(folder, { recursive: true });
}
