// Promise: `ledger check` says where sums do not agree, and exits with success only
// where all do, in Redis and beside the log.
import assert from "node:assert/strict";
import { ownerUsageKey, usageKey } from "@gateway/shared/keys/record";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { commandDeps, runCommand } from "./commands_fixture.ts";
import { LEDGER } from "./ledger.ts";

const AS_DEPLOYED = { redisUser: "key-admin" };
const FIELD = "09:cost@chat:m";

async function check(
  { deps }: Pick<TestConsole, "deps">,
  log?: string,
): Promise<Readonly<Record<string, unknown>>> {
  const args = ["ledger", "check", ...log === undefined ? [] : ["--log", "l"]];
  const readFile = () => Promise.resolve(log ?? "");
  const all = commandDeps({ deps }, { readFile });
  return (await runCommand({ ledger: LEDGER }, args, all)).json;
}

Deno.test("ledger check finds a billionth that a key or its account lacks, and what the log has more", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { keys, owners, now } = site.deps;
  const administrator = await site.server.connect();
  const ownerId = await owners.first();
  const { key } = await keys.create({
    ownerId,
    settings: {
      description: "Ci",
      scopes: ["chat"],
      models: [],
      networks: [],
      priority: "normal",
      keepSeconds: 0,
      endUsers: null,
      limits: site.deps.defaultLimits.key,
      expiresAtMs: null,
    },
    actor: { by: "a", ip: "" },
  });
  const principal = { ownerId, keyId: key.id };
  const day = new Date(now()).toISOString().slice(0, 10).replaceAll("-", "");
  const write = (name: string, nanos: number) =>
    administrator.command(["HSET", name, FIELD, String(nanos)]);
  await write(usageKey(principal, day), 1_500_000_001);
  await write(ownerUsageKey(ownerId, day), 1_500_000_001);
  const done = await check(site);
  assert.deepEqual(
    [done.cost, done.differences, done.days],
    ["1.500000001", 0, 1],
  );
  const line = (cost: string) =>
    `starting\n${
      JSON.stringify({ msg: "chat", keyId: key.id, model: "m", cost })
    }\n`;
  assert.equal((await check(site, line("1.500000001"))).log_lines, 1);
  await assert.rejects(
    check(site, line("1.5") + line("0.000000002")),
    /differences: 1\ncost in the log of key_\w+ m: 1500000002 by its parts, 1500000001 as a whole/,
  );
  await assert.rejects(
    check(site, line("1.500000001") + '{"cost": "0.'),
    /Line 3 of the log is no JSON/,
  );
  // Only the audit log still knows a deleted key.
  await keys.delete({
    ownerId,
    keyId: key.id,
    version: null,
    actor: { by: "a", ip: "" },
  });
  assert.equal((await check(site)).differences, 0);
  await write(ownerUsageKey(ownerId, day), 1_500_000_000);
  await assert.rejects(check(site), new RegExp(`${day} ${FIELD}: 1500000001 `));
});
