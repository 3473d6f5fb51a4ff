/**
 * What a cut through a Redis group does to acknowledged key changes.
 *
 *     deno run --allow-all bench/redis_cut.ts      # as root on Linux, with redis-server
 *
 * Three servers, set as `deploy/redis/node.sh` sets them, and three sentinels run in
 * network namespaces. Writers change keys through the master; the network is cut
 * under them between their side and the other for some seconds, then healed. When
 * one master is left, every key that had an acknowledged change is looked up.
 *
 * Ends with 1 when a change was lost although the sentinels were placed as
 * `docs/operating.md` says, or when none was lost although they were not: then the
 * cut was none.
 */
import { monotonicNow } from "@gateway/shared/process/clock";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { createRedisLink } from "@gateway/shared/redis/link";
import {
  changeKeys,
  emptyLedger,
  findLost,
} from "../services/key-admin/key_changes_fixture.ts";
import { KeyStore } from "../services/key-admin/domain/keys/key_store.ts";
import { waitFor } from "../tests/support/wait_for.ts";

const WRITERS = 8;
const BEFORE_MS = 2_000;
/** Longer than a failover, and than a second one where the first vote had no winner. */
const CUT_MS = 15_000;
const PATIENT_MS = 60_000;
/** How the program inside says that something was lost. */
const LOST_CODE = 3;
const NETWORK = "gwcut";
const PORT = 6379;
const SENTINEL_PORT = 26379;
const MASTER_AT = 11;

/** A machine: where it is when the network is cut, and what runs there. */
interface Machine {
  name: string;
  /** On the side of the writers. */
  isNear: boolean;
  hasServer: boolean;
  sentinels: number;
}

interface Case {
  name: string;
  machines: readonly Machine[];
  mayLose: boolean;
}

const machine = (
  name: string,
  isNear: boolean,
  sentinels: number,
  hasServer = true,
): Machine => ({ name: `${NETWORK}-${name}`, isNear, sentinels, hasServer });

/** The first machine has the first master. */
const CASES: readonly Case[] = [
  {
    name: "a sentinel beside each server; near: master and replica",
    machines: [
      machine("a", true, 1),
      machine("b", true, 1),
      machine("c", false, 1),
    ],
    mayLose: false,
  },
  {
    name: "a sentinel beside each server; near: the master",
    machines: [
      machine("a", true, 1),
      machine("b", false, 1),
      machine("c", false, 1),
    ],
    mayLose: false,
  },
  {
    name: "all sentinels elsewhere; near: master and replica",
    machines: [
      ...[machine("a", true, 0), machine("b", true, 0), machine("c", false, 0)],
      machine("s", false, 3, false),
    ],
    mayLose: true,
  },
];

const addressOf = (at: number) => `10.77.0.${MASTER_AT + at}`;

async function run(command: string, ...args: string[]): Promise<string> {
  const { success, stdout, stderr } = await new Deno.Command(command, { args })
    .output();
  const decoder = new TextDecoder();
  if (!success) {
    throw new Error(`${command} ${args.join(" ")}: ${decoder.decode(stderr)}`);
  }
  return decoder.decode(stdout);
}

const ip = (...args: string[]) => run("ip", ...args);
const inNetwork = (...args: string[]) => ip("-n", NETWORK, ...args);

/** Two switches with a cable between them; the machines hang on their side's. */
async function buildNetwork(machines: readonly Machine[]): Promise<void> {
  await ip("netns", "add", NETWORK);
  for (const side of ["near", "far"]) {
    await inNetwork("link", "add", side, "type", "bridge");
    await inNetwork("link", "set", side, "up");
  }
  await inNetwork("addr", "add", "10.77.0.1/24", "dev", "near");
  const cable = ["cable", "type", "veth", "peer", "name", "cable-far"];
  await inNetwork("link", "add", ...cable);
  await inNetwork("link", "set", "cable", "master", "near", "up");
  await inNetwork("link", "set", "cable-far", "master", "far", "up");
  for (const [at, { name, isNear }] of machines.entries()) {
    const [port, side] = [`port${at}`, isNear ? "near" : "far"];
    await ip("netns", "add", name);
    const wire = [port, "type", "veth", "peer", "name", "eth", "netns", name];
    await inNetwork("link", "add", ...wire);
    await inNetwork("link", "set", port, "master", side, "up");
    await ip("-n", name, "addr", "add", `${addressOf(at)}/24`, "dev", "eth");
    await ip("-n", name, "link", "set", "eth", "up");
    await ip("-n", name, "link", "set", "lo", "up");
  }
}

/** Starts what runs on a machine. */
async function startOn(machine: Machine, at: number, folder: string) {
  const start = async (name: string, config: string, ...args: string[]) => {
    const directory = `${folder}/${machine.name}-${name}`;
    await Deno.mkdir(directory);
    await Deno.writeTextFile(`${directory}/redis.conf`, config);
    return new Deno.Command("ip", {
      args: [
        ...["netns", "exec", machine.name, "redis-server", "redis.conf"],
        ...["--bind", "0.0.0.0", "--protected-mode", "no", ...args],
      ],
      cwd: directory,
      stdout: "null",
    }).spawn();
  };
  const children: Deno.ChildProcess[] = [];
  if (machine.hasServer) {
    const follow = at === 0 ? "" : `replicaof ${addressOf(0)} ${PORT}\n`;
    children.push(
      await start(
        "server",
        `${follow}port ${PORT}\nappendonly yes\nappendfsync always\nsave ""\n` +
          "repl-diskless-sync-delay 0\n" +
          "min-replicas-to-write 1\nmin-replicas-max-lag 3\n",
      ),
    );
  }
  for (let index = 0; index < machine.sentinels; index++) {
    children.push(
      await start(
        `sentinel${index}`,
        `port ${SENTINEL_PORT + index}\n` +
          `sentinel monitor gateway ${addressOf(0)} ${PORT} 2\n` +
          "sentinel down-after-milliseconds gateway 3000\n" +
          "sentinel failover-timeout gateway 3000\n",
        "--sentinel",
      ),
    );
  }
  return children;
}

function sentinelsOf(machines: readonly Machine[]): string[] {
  return machines.flatMap(({ sentinels }, at) =>
    Array.from(
      { length: sentinels },
      (_, index) => `${addressOf(at)}:${SENTINEL_PORT + index}`,
    )
  );
}

/** The store of keys, over the sentinels. */
async function openStore(servers: readonly string[]) {
  const open = () =>
    createRedisLink({
      address: {
        url: "redis://sentinels",
        sentinels: { name: "gateway", servers },
      },
      log: silentLog,
      now: monotonicNow,
      random: Math.random,
      deadlineMs: 2_000,
    });
  const [link, writer] = [open(), open()];
  await Promise.all([link.ready(PATIENT_MS), writer.ready(PATIENT_MS)]);
  return {
    link,
    writer,
    keys: new KeyStore({ redis: link, writer, randomBytes }),
  };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** What servers say that they are: `["master", "slave", "slave"]`. */
async function roles(machines: readonly Machine[]): Promise<string[]> {
  const asked = machines.flatMap(({ hasServer }, at) =>
    hasServer ? [run("redis-cli", "-h", addressOf(at), "role")] : []
  );
  return (await Promise.all(asked)).map((said) => said.split("\n", 1)[0] ?? "");
}

const hasOneMaster = async (machines: readonly Machine[]) =>
  (await roles(machines)).filter((role) => role === "master").length === 1;

/** Runs inside of the network: writers, the cut, and the reckoning. */
async function tryCut({ machines }: Case): Promise<number> {
  const sentinels = sentinelsOf(machines);
  const before = await openStore(sentinels);
  const known = async () =>
    /slaves=2,sentinels=3/.test(
      await run(
        "redis-cli",
        ...["-h", sentinels[0]?.split(":")[0] ?? ""],
        ...["-p", String(SENTINEL_PORT), "info", "sentinel"],
      ),
    );
  await waitFor(known, { what: "the sentinels", timeoutMs: PATIENT_MS });
  const ledger = emptyLedger();
  const count = () =>
    Object.values(ledger.counts).reduce((sum, each) => sum + each, 0);
  let isOver = false;
  const writers = Array.from(
    { length: WRITERS },
    () => changeKeys(before.keys, ledger, () => isOver),
  );
  await pause(BEFORE_MS);
  await run("ip", "link", "set", "cable", "down");
  const early = count();
  await pause(CUT_MS);
  isOver = true;
  await Promise.all(writers);
  const masters = (await roles(machines.filter(({ isNear }) => isNear))).join();
  await run("ip", "link", "set", "cable", "up");
  await waitFor(() => hasOneMaster(machines), {
    what: "one master",
    timeoutMs: PATIENT_MS,
    intervalMs: 200,
  });
  await Promise.all([before.link.close(), before.writer.close()]);
  const after = await openStore(sentinels);
  const { lost } = await findLost(after.link, after.keys, ledger);
  await Promise.all([after.link.close(), after.writer.close()]);
  print(
    `  acknowledged before the cut ${early}, after it ${count() - early}; ` +
      `near servers were ${masters}; lost ${lost.length}`,
  );
  return lost.length;
}

/** Builds it, runs this program inside, and takes it down again. */
async function tryCase(index: number, { name, machines, mayLose }: Case) {
  print(name);
  const folder = await Deno.makeTempDir({ prefix: "redis-cut-" });
  const children: Deno.ChildProcess[] = [];
  try {
    await buildNetwork(machines);
    for (const [at, machine] of machines.entries()) {
      children.push(...await startOn(machine, at, folder));
    }
    const { pathname } = new URL(import.meta.url);
    const inside = new Deno.Command("ip", {
      args: [
        ...["netns", "exec", NETWORK, Deno.execPath(), "run", "--allow-all"],
        ...[pathname, String(index)],
      ],
      stdout: "inherit",
      stderr: "inherit",
    });
    const { code } = await inside.output();
    if (code !== (mayLose ? LOST_CODE : 0)) Deno.exitCode = 1;
  } finally {
    for (const child of children) child.kill("SIGKILL");
    await Promise.all(children.map((child) => child.status));
    const names = [...machines.map((each) => each.name), NETWORK];
    for (const each of names) await ip("netns", "del", each);
    await Deno.remove(folder, { recursive: true });
  }
}

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));
}

const [chosen] = Deno.args;
if (chosen === undefined) {
  for (const [index, each] of CASES.entries()) await tryCase(index, each);
} else {
  const each = CASES[Number(chosen)];
  if (each === undefined) throw new Error(`No case ${chosen}`);
  if (await tryCut(each) > 0) Deno.exitCode = LOST_CODE;
}
