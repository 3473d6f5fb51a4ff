/**
 * How fast the console's list of keys is when one owner has very many: first
 * page, last page, pages in between, filters and searches, rendered HTML included.
 *
 *     deno run --allow-all bench/console_pages.ts [keys, default 100000]
 *
 * Uses a private redis-server. Ends with 1 when a page is slower than promised
 * (p95 of 300 ms).
 */
import { performance } from "node:perf_hooks";
import {
  hashKeyValue,
  keyHint,
  mintKey,
  mintKeyId,
} from "@gateway/shared/keys/key";
import {
  type KeyRecord,
  keysKey,
  recordKey,
  UNLIMITED,
} from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import {
  signIn,
  startConsole,
  type TestConsole,
} from "../services/key-admin/console_fixture.ts";
import { PAGE_ROWS } from "../services/key-admin/domain/keys/key_page.ts";
import { encodeKey } from "../services/key-admin/domain/keys/key_record.ts";

const KEYS = Number(Deno.args[0] ?? 100_000);
const ROUNDS = 40;
const P95_MS_MAX = 300;
const PAGES_TO_MIDDLE = 20;
const EMAIL = "ada@example.org";
const WORDS = ["billing", "search", "chat", "staging", "mobile", "nightly"];
/** Keys made at once. */
const BATCH = 100;

/** Every 100th is disabled, every 10th has an end. */
function seededKey(ownerId: string, n: number, nowMs: number): KeyRecord {
  const value = mintKey(randomBytes);
  return {
    id: mintKeyId(randomBytes),
    ownerId,
    state: n % 100 === 0 ? "disabled" : "enabled",
    description: `${WORDS[n % WORDS.length]} service number ${n}`,
    hint: keyHint(value),
    hash: hashKeyValue(value),
    ...{ scopes: ["chat"], models: [], limits: UNLIMITED, version: 1 },
    createdAtMs: nowMs + n,
    expiresAtMs: n % 10 === 0 ? nowMs + 1e9 : null,
  };
}

async function seedKeys({ deps }: TestConsole, ownerId: string) {
  const nowMs = deps.now();
  for (let from = 0; from < KEYS; from += BATCH) {
    await Promise.all(Array.from({ length: BATCH }, async (_, n) => {
      const key = seededKey(ownerId, from + n, nowMs);
      const record = recordKey({ ownerId, keyId: key.id });
      await deps.redis.command(["HSET", record, ...encodeKey(key)]);
      const time = String(key.createdAtMs);
      await deps.redis.command(["ZADD", keysKey(ownerId), time, key.id]);
    }));
  }
}

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
await seedKeys(site, await site.addOwner(EMAIL));
print(`${KEYS} keys of one owner, ${ROUNDS} times each page`);
const client = site.client();
await signIn(client, EMAIL);
let middle = "/keys";
for (let steps = 0; steps < PAGES_TO_MIDDLE; steps++) {
  const { text } = await client.get(middle);
  const next = /href="([^"]+)">Next/.exec(text)?.[1] ?? middle;
  middle = next.replaceAll("&amp;", "&");
}
const number = KEYS - 1 - (KEYS - 1 - WORDS.indexOf("nightly")) % WORDS.length;
const pages: [name: string, path: string, rows: number][] = [
  ["first page", "/keys", PAGE_ROWS],
  ["middle page", middle, PAGE_ROWS],
  ["last page", "/keys?last=1", PAGE_ROWS],
  ["disabled", "/keys?filter=disabled", PAGE_ROWS],
  ["disabled, last page", "/keys?filter=disabled&last=1", PAGE_ROWS],
  ["search one word", "/keys?search=billing", PAGE_ROWS],
  ["search one key", `/keys?search=${KEYS - 7}`, 1],
  ["search two words", `/keys?search=nightly+${number}`, 1],
  ["search what is nowhere", "/keys?search=zebra", 0],
  ["search, rare state", "/keys?search=service&filter=disabled", PAGE_ROWS],
];
for (const [name, path, rows] of pages) {
  const { text } = await client.get(path);
  const found = new Set(text.match(/\/keys\/key_[0-9A-Za-z]{20}/g)).size;
  if (found !== rows) throw new Error(`${path} shows ${found} keys: ${rows}`);
  const times = await timesOf(() => client.get(path));
  const at = (part: number) => times[Math.ceil(part * ROUNDS) - 1] ?? NaN;
  const isGood = at(0.95) < P95_MS_MAX;
  if (!isGood) Deno.exitCode = 1;
  print(
    `${name.padEnd(24)} p50 ${at(0.5).toFixed(1).padStart(5)} ms  ` +
      `p95 ${at(0.95).toFixed(1).padStart(5)} ms` +
      `${isGood ? "" : "  NOT AS PROMISED"}`,
  );
}
