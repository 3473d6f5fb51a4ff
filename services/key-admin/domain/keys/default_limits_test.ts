// Promise: the operator's default limits are those of every new key and owner, made
// by the command line or the console, and whoever names a limit has that one.
import assert from "node:assert/strict";
import type { Limits } from "@gateway/shared/keys/record";
import { runKeysCommand } from "../../cli/keys.ts";
import { parseCommandLine } from "../../cli/command_line.ts";
import { startConsole, type TestConsole } from "../../console_fixture.ts";

const KEY: Limits = {
  requestsPerMinute: 600,
  tokensPerMinute: 100_000,
  tokensPerDay: 0,
  concurrency: 10,
};
const OWNER: Limits = {
  requestsPerMinute: 6_000,
  tokensPerMinute: 0,
  tokensPerDay: 5_000_000,
  concurrency: 100,
};
const ADA = "ada@example.org";

const start = () => startConsole({ defaultLimits: { key: KEY, owner: OWNER } });

async function createdBy(
  { deps }: TestConsole,
  ...args: string[]
): Promise<Limits> {
  const line = ["create", "--description", "a", "--owner", ADA, ...args];
  const { json } = await runKeysCommand(
    { ...deps, defaultLimits: deps.defaultLimits.key },
    parseCommandLine(line),
  );
  const ownerId = await deps.owners.find(ADA) ?? assert.fail("no owner");
  const keyId = String(Object(json).id);
  const key = await deps.keys.get(ownerId, keyId);
  return key?.limits ?? assert.fail("no key");
}

Deno.test("a key made on the command line has the default limits where it names none", async () => {
  await using site = await start();
  assert.deepEqual(await createdBy(site), KEY);
  assert.deepEqual(
    await createdBy(site, "--rpm", "5", "--concurrency", "0"),
    { ...KEY, requestsPerMinute: 5, concurrency: 0 },
  );
});

Deno.test("the console's form for a new key begins with the default limits", async () => {
  await using site = await start();
  const client = await site.signedIn(ADA);
  const { text } = await client.get("/keys/new");
  const valueOf = (field: string) => {
    const input = new RegExp(`<input[^>]*name="${field}"[^>]*>`).exec(text);
    return /value="([^"]*)"/.exec(input?.[0] ?? assert.fail(field))?.[1] ?? "";
  };
  assert.deepEqual(
    ["rpm", "tpm", "tpd", "concurrency"].map(valueOf),
    ["600", "100000", "", "10"],
  );
});

Deno.test("a new owner has the default limits, one that was there keeps its own", async () => {
  await using site = await start();
  const { owners } = site.deps;
  for (const ownerId of [await owners.ensure(ADA), await owners.first()]) {
    assert.deepEqual(await owners.limits(ownerId), OWNER);
  }
  const ownerId = await owners.ensure(ADA);
  await owners.setLimits(ownerId, KEY);
  assert.equal(await owners.ensure(ADA), ownerId);
  assert.deepEqual(await owners.limits(ownerId), KEY);
});
