// Promise: `ledger check` says where sums do not agree, and exits with success only
// where all do, in Redis and beside the log.
import assert from "node:assert/strict";
import {
  ownerUsageKey,
  type Principal,
  usageKey,
} from "@gateway/shared/keys/record";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { commandDeps, runCommand } from "./commands_fixture.ts";
import { LEDGER } from "./ledger.ts";

const AS_DEPLOYED = { redisUser: "key-admin" };
const FIELD = "09:cost@chat:m";
const LOST_FIELD = "09:loc@chat:m";

/** Runs the command with these files of log lines. */
async function check(
  { deps }: Pick<TestConsole, "deps">,
  ...inputs: readonly (string | { unlogged: number })[]
): Promise<Readonly<Record<string, unknown>>> {
  const logs = inputs.filter((each) => typeof each === "string");
  const others = inputs.filter((each) => typeof each !== "string")
    .flatMap(({ unlogged }) => ["--unlogged", String(unlogged)]);
  const files = new Map(logs.map((text, n) => [`edge-${n}.log`, text]));
  const named = [...files.keys()].flatMap((file) => ["--log", file]);
  const args = ["ledger", "check", ...named, ...others];
  const readFile = (file: string) =>
    Promise.resolve(files.get(file) ?? assert.fail(file));
  const all = commandDeps({ deps }, { readFile });
  return (await runCommand({ ledger: LEDGER }, args, all)).json;
}

/** The books of a key of the first owner today, which a test writes. */
async function openBooks({ deps, server }: TestConsole) {
  const administrator = await server.connect();
  const ownerId = await deps.owners.first();
  const { key } = await deps.keys.create({
    ownerId,
    settings: {
      description: "Ci",
      scopes: ["chat"],
      models: [],
      networks: [],
      priority: "normal",
      endUsers: null,
      keepSeconds: 0,
      limits: deps.defaultLimits.key,
      expiresAtMs: null,
    },
    actor: { by: "a", ip: "" },
  });
  const day = new Date(deps.now()).toISOString().slice(0, 10)
    .replaceAll("-", "");
  const principal: Principal = { ownerId, keyId: key.id };
  const names = {
    key: usageKey(principal, day),
    owner: ownerUsageKey(ownerId, day),
  };
  const write = (name: string, nanos: number, field = FIELD) =>
    administrator.command(["HSET", name, field, String(nanos)]);
  const writeBoth = async (nanos: number, field = FIELD) => {
    for (const name of Object.values(names)) await write(name, nanos, field);
  };
  const line = (cost: string) =>
    `starting\n${
      JSON.stringify({ msg: "chat", keyId: key.id, model: "m", cost })
    }\n`;
  return { principal, day, names, write, writeBoth, line };
}

Deno.test("ledger check finds a billionth that a key or its account lacks, and knows deleted keys", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { principal, day, names, write, writeBoth } = await openBooks(site);
  await writeBoth(1_500_000_001);
  const done = await check(site);
  assert.deepEqual(
    [done.cost, done.differences, done.days],
    ["1.500000001", 0, 1],
  );
  // Only the audit log still knows a deleted key.
  const actor = { by: "a", ip: "" };
  await site.deps.keys.delete({ ...principal, version: null, actor });
  assert.equal((await check(site)).differences, 0);
  await write(names.owner, 1_500_000_000);
  await assert.rejects(check(site), new RegExp(`${day} ${FIELD}: 1500000001 `));
});

Deno.test("ledger check finds what the logs of all edges have more or less, and what cannot be read", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { writeBoth, line } = await openBooks(site);
  await writeBoth(1_500_000_001);
  assert.equal((await check(site, line("1.500000001"))).log_lines, 1);
  const ofTwoEdges = await check(site, line("1"), line("0.500000001"));
  assert.equal(ofTwoEdges.log_lines, 2, "each edge has its own file");
  await assert.rejects(
    check(site, line("1.5") + line("0.000000002")),
    /differences: 1\ncost in the log of key_\w+ m: 1500000002 by its parts, 1500000001 as a whole/,
  );
  await assert.rejects(
    check(site, line("1.500000001") + '{"cost": "0.'),
    /Line 3 of edge-0.log is no JSON/,
  );
  const args = ["ledger", "check", "--log", "nowhere.log"];
  const readFile = () => Promise.reject(new Deno.errors.NotFound("readfile"));
  const deps = commandDeps(site, { readFile });
  await assert.rejects(
    runCommand({ ledger: LEDGER }, args, deps),
    /^CommandRefused: nowhere\.log cannot be read$/,
  );
});

Deno.test("ledger check counts the lines that killed edges did not write, and takes no more than it is told", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { writeBoth, line } = await openBooks(site);
  await writeBoth(1_700_000_001);
  await writeBoth(5, "09:req@chat:m");
  await writeBoth(200_000_000, LOST_FIELD);
  await writeBoth(1, "09:lor@chat:m");
  const log = line("0.5") + line("0.25");
  await assert.rejects(
    check(site, log),
    /m, which lacks lines: 2: 750000000 by its parts, 1500000001 as a whole/,
  );
  const unlogged = (n: number, text = log) =>
    check(site, text, { unlogged: n });
  await assert.rejects(unlogged(1), /lacks lines: 2/);
  const done = await unlogged(2);
  assert.deepEqual(
    [done.unlogged_requests, done.unlogged_cost, done.differences],
    [2, "0.750000001", 0],
  );
  const whole = line("0.5") + line("0.5") + line("0.25");
  await assert.rejects(
    unlogged(9, whole + line("0.2")),
    /differences: 1\ncost in the log of key_\w+ m: 1450000000 by/,
    "no line is missing, so the cost must be the same",
  );
  await assert.rejects(unlogged(9, line("1.6")), /m: 1600000000 by its parts/);
});

Deno.test("ledger check tells apart what requests of a lost edge were charged: no log has a line of it", async () => {
  await using site = await startConsole(AS_DEPLOYED);
  const { writeBoth, line } = await openBooks(site);
  await writeBoth(1_700_000_001);
  await writeBoth(200_000_000, LOST_FIELD);
  const { cost, estimated, differences } = await check(
    site,
    line("1.500000001"),
  );
  assert.deepEqual([cost, estimated, differences], ["1.700000001", "0.2", 0]);
  await assert.rejects(check(site, line("1.7")), /differences: 1/);
});
