// Promise: however `up` is stopped, no process outlives it.
import assert from "node:assert/strict";
import { startStopwatch, until } from "../support/wait_for.ts";
import {
  allPids,
  LAUNCHER,
  makeScratch,
  running,
  startLauncher,
  untilEnded,
} from "./stand_ins/launcher.ts";

/** Promise: no process is left, whichever process of the chain is killed. */
Deno.test("up leaves no process when the launcher is killed with -9", async () => {
  await using up = startLauncher({ env: { STAND_IN_FAULT: "edge-auth:deaf" } });
  const state = await up.state();
  // A frozen process reacts to SIGKILL only.
  for (const pid of state.pids["chat-worker"] ?? []) Deno.kill(pid, "SIGSTOP");
  using watch = startStopwatch();
  up.signal("SIGKILL");
  await untilEnded(allPids(state));
  assert.ok(watch.ms < 5_000);
  await until(async () => !await up.readState());
});

Deno.test("up stops in order when the runner above it is killed with -9", async (t) => {
  const task = JSON.stringify({
    tasks: { up: LAUNCHER.map((word) => `'${word}'`).join(" ") },
  });
  // Like npx: a shell below it, and a variable that only its descendants have.
  const shell = `npm_lifecycle_event=npx npm_lifecycle_script=x INIT_CWD=/ ` +
    `sh -c '"$@"; :' sh "$@"; :`;
  const runners: [name: string, command: string[]][] = [
    ["deno task", [Deno.execPath(), "task", "up"]],
    ["npx", ["sh", "-c", shell, "npx", ...LAUNCHER]],
  ];
  for (const [name, command] of runners) {
    await t.step(name, async () => {
      await using scratch = await makeScratch();
      await Deno.writeTextFile(`${scratch.path}/deno.json`, task);
      const env = { INIT_CWD: scratch.path };
      await using up = startLauncher({ command, dir: scratch.path, env });
      const state = await up.state();
      assert.notEqual(state.pid, up.pid);
      up.signal("SIGKILL");
      await untilEnded([state.pid, ...allPids(state)]);
      assert.deepEqual(await up.stopOrder(), [
        "edge-auth",
        "media-worker",
        "chat-worker",
        "key-admin",
        "model-simulator",
      ]);
    });
  }
});

Deno.test("up does not start on the data of a Redis that still runs", async () => {
  await using up = startLauncher();
  const state = await up.state();
  // The launcher and its watcher, before the watcher can react.
  const own = allPids(state);
  // By `cat`, since Deno reads /proc only with all permissions.
  const { stdout } = await new Deno.Command("cat", {
    args: [`/proc/${up.pid}/task/${up.pid}/children`],
  }).output();
  const others = new TextDecoder().decode(stdout).trim().split(" ").map(Number)
    .filter((pid) => !own.includes(pid));
  up.signal("SIGSTOP");
  for (const pid of others) Deno.kill(pid, "SIGKILL");
  up.signal("SIGKILL");
  await up.exitCode;
  try {
    await using next = startLauncher({ dir: up.path });
    const { port } = new URL(state.redis_url);
    const refusal = new RegExp(`may still use[^]*port ${port} is busy`);
    await next.prints(refusal);
    assert.equal(await next.exitCode, 1);
  } finally {
    for (const pid of allPids(state)) Deno.kill(pid, "SIGKILL");
  }
  await using next = startLauncher({ dir: up.path });
  await next.state();
});

Deno.test("up exits at once at a second Ctrl-C", async () => {
  await using up = startLauncher({ env: { STAND_IN_FAULT: "edge-auth:deaf" } });
  const state = await up.state();
  up.signal("SIGINT");
  // The same Ctrl-C, passed on by a runner, is not a second one.
  up.signal("SIGINT");
  await up.prints(/Stopping/);
  await new Promise((resolve) => setTimeout(resolve, 400));
  assert.equal((await running(state.pids["edge-auth"] ?? [])).length, 1);
  up.signal("SIGINT");
  assert.equal(await up.exitCode, 130);
  await untilEnded(allPids(state));
});

Deno.test("up outlives its terminal under nohup, and only then", async () => {
  await using plain = startLauncher();
  await plain.state();
  plain.signal("SIGHUP");
  assert.equal(await plain.exitCode, 0);
  await using up = startLauncher({ command: ["nohup", ...LAUNCHER] });
  const { pids: { "chat-worker": [first] = [] } } = await up.state();
  up.signal("SIGHUP");
  await until(async () => {
    // The launcher shows that it is alive by what it does.
    const [worker] = (await up.readState())?.pids["chat-worker"] ?? [];
    if (worker === undefined) return false;
    if (worker !== first) return true;
    for (const pid of await running([worker])) Deno.kill(pid, "SIGKILL");
  });
});
