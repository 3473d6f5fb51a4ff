import assert from "node:assert/strict";
import { randomBytes } from "@gateway/shared/process/ids";
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
import type { TestClient, TestConsole } from "./console_fixture.ts";
import { encodeKey } from "./domain/keys/key_record.ts";
import { PAGE_ROWS } from "./domain/keys/key_page.ts";

/** One owner with very many keys, and what the pages of their list cost. */

const WORDS = ["billing", "search", "chat", "staging", "mobile", "nightly"];
/** Made at once. */
const BATCH = 100;
const DISABLED_EVERY = 100;
const EXPIRING_EVERY = 10;
const PAGES_TO_MIDDLE = 20;
/** Sent to keep a connection, and by ourselves to mark the end. */
const CONNECTION = ["PING", "ECHO"];

/** Makes `count` keys; every 100th is disabled, every 10th has an end. */
export async function seedKeys(
  { deps }: TestConsole,
  ownerId: string,
  count: number,
): Promise<void> {
  const nowMs = deps.now();
  for (let from = 0; from < count; from += BATCH) {
    await Promise.all(
      Array.from({ length: Math.min(BATCH, count - from) }, async (_, n) => {
        const key = seededKey(ownerId, from + n, nowMs);
        const record = recordKey({ ownerId, keyId: key.id });
        await deps.redis.command(["HSET", record, ...encodeKey(key)]);
        const time = String(key.createdAtMs);
        await deps.redis.command(["ZADD", keysKey(ownerId), time, key.id]);
      }),
    );
  }
}

function seededKey(ownerId: string, n: number, nowMs: number): KeyRecord {
  const value = mintKey(randomBytes);
  return {
    id: mintKeyId(randomBytes),
    ownerId,
    state: n % DISABLED_EVERY === 0 ? "disabled" : "enabled",
    description: `${WORDS[n % WORDS.length]} service number ${n}`,
    hint: keyHint(value),
    hash: hashKeyValue(value),
    scopes: ["chat"],
    models: [],
    limits: UNLIMITED,
    createdAtMs: nowMs + n,
    expiresAtMs: n % EXPIRING_EVERY === 0 ? nowMs + 1e9 : null,
    version: 1,
  };
}

/** Pages of the list of so many seeded keys, the costly ones among them, with the rows each has to show. */
export async function listPages(
  client: TestClient,
  count: number,
): Promise<[name: string, path: string, rows: number][]> {
  const nightly = WORDS.indexOf("nightly");
  const number = count - 1 - (count - 1 - nightly) % WORDS.length;
  return [
    ["first page", "/keys", PAGE_ROWS],
    ["middle page", await middlePage(client), PAGE_ROWS],
    ["last page", "/keys?last=1", PAGE_ROWS],
    ["disabled", "/keys?filter=disabled", PAGE_ROWS],
    ["disabled, last page", "/keys?filter=disabled&last=1", PAGE_ROWS],
    ["search one word", "/keys?search=billing", PAGE_ROWS],
    ["search one key", `/keys?search=${count - 7}`, 1],
    ["search two words", `/keys?search=nightly+${number}`, 1],
    ["search what is nowhere", "/keys?search=zebra", 0],
    ["search, rare state", "/keys?search=service&filter=disabled", PAGE_ROWS],
  ];
}

/** The address of a page in the middle: some steps from the first. */
async function middlePage(client: TestClient): Promise<string> {
  let path = "/keys";
  for (let steps = 0; steps < PAGES_TO_MIDDLE; steps++) {
    const { text } = await client.get(path);
    const next = /href="([^"]+)">Next/.exec(text)?.[1];
    path = next?.replaceAll("&amp;", "&") ??
      assert.fail(`no page after ${path}`);
  }
  return path;
}

/** Names of all commands that clients sent to the server meanwhile; what scripts do inside is not among them, nor what keeps a connection. */
export async function commandsDuring(
  { server, deps }: TestConsole,
  action: () => Promise<unknown>,
): Promise<string[]> {
  const { port } = server;
  using socket = await Deno.connect({ hostname: "127.0.0.1", port });
  await socket.write(new TextEncoder().encode("MONITOR\r\n"));
  const lines = socket.readable.pipeThrough(new TextDecoderStream())
    .getReader();
  assert.match((await lines.read()).value ?? "", /^\+OK/);
  await action();
  const marker = mintKeyId(randomBytes);
  await deps.redis.command(["ECHO", marker]);
  let text = "";
  while (!text.includes(marker)) text += (await lines.read()).value ?? "";
  return [...text.matchAll(/^\+[\d.]+ \[0 [^l][^\]]*\] "(\w+)"/gm)]
    .map(([, name = ""]) => name).filter((name) => !CONNECTION.includes(name));
}
