/**
 * How fast the console's list of keys is when one owner has very many: first
 * page, last page, pages in between, filters and searches, rendered HTML included.
 *
 *     deno run --allow-all bench/console_pages.ts [keys, default 100000]
 *
 * Uses a private redis-server. Ends with 1 when a page is slower than promised
 * (p95 of 300 ms) or sends more than 10,200 commands to Redis.
 */
import { performance } from "node:perf_hooks";
import { signIn, startConsole } from "../services/key-admin/console_fixture.ts";
import {
  commandsDuring,
  listPages,
  seedKeys,
} from "../services/key-admin/many_keys_fixture.ts";

const KEYS = Number(Deno.args[0] ?? 100_000);
const ROUNDS = 40;
const P95_MS_MAX = 300;
const COMMANDS_MAX = 10_200;
const EMAIL = "ada@example.org";

/** Times of a page in ms, sorted. */
async function timesOf(get: () => Promise<unknown>): Promise<number[]> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const startMs = performance.now();
    await get();
    times.push(performance.now() - startMs);
  }
  return times.sort((a, b) => a - b);
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

await using site = await startConsole({ settings: ["--appendonly", "no"] });
await seedKeys(site, await site.addOwner(EMAIL), KEYS);
print(`${KEYS} keys of one owner, ${ROUNDS} times each page`);
const client = site.client();
await signIn(client, EMAIL);
for (const [name, path, rows] of await listPages(client, KEYS)) {
  const { text } = await client.get(path);
  const found = new Set(text.match(/\/keys\/key_[0-9A-Za-z]{20}/g)).size;
  if (found !== rows) throw new Error(`${path} shows ${found} keys: ${rows}`);
  const sent = await commandsDuring(site, () => client.get(path));
  // Measured apart: Redis is slower while it is watched.
  const times = await timesOf(() => client.get(path));
  const at = (part: number) => times[Math.ceil(part * ROUNDS) - 1] ?? NaN;
  const isGood = at(0.95) < P95_MS_MAX && sent.length <= COMMANDS_MAX;
  if (!isGood) Deno.exitCode = 1;
  print(
    `${name.padEnd(24)} p50 ${at(0.5).toFixed(1).padStart(5)} ms  ` +
      `p95 ${at(0.95).toFixed(1).padStart(5)} ms  ${sent.length} commands` +
      `${isGood ? "" : "  NOT AS PROMISED"}`,
  );
}
