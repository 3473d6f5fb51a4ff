/**
 * How fast the console's list of keys is when one owner has very many: first
 * page, last page, pages in between, filters and searches, rendered HTML included.
 *
 *     deno run --allow-all bench/console_pages.ts [keys, default 100000]
 *
 * Uses a private redis-server. Ends with 1 when a page is slower than promised
 * (p95 of 200 ms) or takes more than one script call.
 */
import { performance } from "node:perf_hooks";
import { UNLIMITED } from "@gateway/shared/keys/record";
import {
  signIn,
  startConsole,
  type TestClient,
  type TestConsole,
} from "../services/key-admin/console_fixture.ts";
import { asText } from "../services/key-admin/store/reply.ts";

const KEYS = Number(Deno.args[0] ?? 100_000);
const AT_ONCE = 100;
const ROUNDS = 40;
const P95_MS_MAX = 200;
const EMAIL = "ada@example.org";
const WORDS = ["billing", "search", "chat", "staging", "mobile", "nightly"];

async function seed(site: TestConsole): Promise<void> {
  const ownerId = await site.addOwner(EMAIL);
  const actor = { by: EMAIL, ip: "" };
  let next = 0;
  const work = async () => {
    for (let n = next++; n < KEYS; n = next++) {
      const made = await site.deps.keys.create({
        ownerId,
        settings: {
          description: `${WORDS[n % WORDS.length]} service number ${n}`,
          scopes: ["chat"],
          models: [],
          limits: UNLIMITED,
          expiresAtMs: n % 10 === 0 ? Date.now() + 1e9 : null,
        },
        actor,
      });
      if (!made.ok) throw new Error(made.reason);
      if (n % 100 !== 0) continue;
      const keyId = made.key.id;
      await site.deps.keys.disable({ ownerId, keyId, version: 1, actor });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function scriptCalls({ deps }: TestConsole): Promise<number> {
  const stats = asText(await deps.redis.command(["INFO", "commandstats"]));
  return Number(/cmdstat_evalsha:calls=(\d+)/.exec(stats)?.[1] ?? 0);
}

async function measure(
  site: TestConsole,
  client: TestClient,
  path: string,
): Promise<{ p50: number; p95: number; calls: number }> {
  const times: number[] = [];
  const before = await scriptCalls(site);
  for (let round = 0; round < ROUNDS; round++) {
    const startMs = performance.now();
    const answer = await client.get(path);
    times.push(performance.now() - startMs);
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status}`);
  }
  times.sort((a, b) => a - b);
  const at = (part: number) => times[Math.floor(part * (ROUNDS - 1))] ?? NaN;
  const calls = (await scriptCalls(site) - before) / ROUNDS;
  return { p50: at(0.5), p95: at(0.95), calls };
}

/** The address of a page in the middle: some steps from the first. */
async function middlePage(client: TestClient): Promise<string> {
  let path = "/keys";
  for (let steps = 0; steps < 20; steps++) {
    const { text } = await client.get(path);
    const next = /href="([^"]+)">Next/.exec(text)?.[1];
    if (next === undefined) return path;
    path = next.replaceAll("&amp;", "&");
  }
  return path;
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

await using site = await startConsole({ settings: ["--appendonly", "no"] });
const startMs = performance.now();
await seed(site);
print(`${KEYS} keys made in ${Math.round(performance.now() - startMs)} ms`);
const client = site.client();
await signIn(client, EMAIL);
const paths: [name: string, path: string][] = [
  ["first page", "/keys"],
  ["middle page", await middlePage(client)],
  ["last page", "/keys?last=1"],
  ["disabled", "/keys?filter=disabled"],
  ["disabled, last page", "/keys?filter=disabled&last=1"],
  ["search one word", "/keys?search=billing"],
  ["search one key", `/keys?search=${KEYS - 7}`],
  ["search two words", `/keys?search=nightly+${KEYS - 1}`],
  ["search what is nowhere", "/keys?search=zebra"],
  ["search, rare state", "/keys?search=service&filter=disabled"],
];
for (const [name, path] of paths) {
  const { p50, p95, calls } = await measure(site, client, path);
  const isGood = p95 < P95_MS_MAX && calls === 1;
  if (!isGood) Deno.exitCode = 1;
  print(
    `${name.padEnd(24)} p50 ${p50.toFixed(1)} ms  p95 ${p95.toFixed(1)} ms  ` +
      `${calls} script calls${isGood ? "" : "  NOT AS PROMISED"}`,
  );
}
