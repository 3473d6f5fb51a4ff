import assert from "node:assert/strict";
import {
  allPids,
  isRunning,
  launcherCommand,
  makeScratch,
  readState,
  running,
  startLauncher,
  stopOrder,
  until,
} from "./testing/launcher.ts";

/** Promise: no orphan, whichever process of the chain is killed. */
Deno.test("up leaves no process when the launcher is killed with -9", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch);
  const state = await up.state();
  const started = performance.now();
  up.signal("SIGKILL");
  await until(
    "the end of all",
    async () => (await running(allPids(state))).length === 0,
  );
  assert.ok(performance.now() - started < 5_000);
  await until(
    "the end of up.json",
    async () => await readState(scratch) === undefined,
  );
});

Deno.test("up ends a service that ignores SIGTERM when the launcher is killed", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    env: { STAND_IN_FAULT: "edge-auth:deaf" },
  });
  const state = await up.state();
  // A frozen process takes no signal but the last.
  for (const pid of state.pids["chat-worker"] ?? []) Deno.kill(pid, "SIGSTOP");
  up.signal("SIGKILL");
  await until(
    "the end of all",
    async () => (await running(allPids(state))).length === 0,
  );
});

Deno.test("up stops in order when the runner above it is killed with -9", async () => {
  await using scratch = await makeScratch();
  const task = launcherCommand().map((word) => `'${word}'`).join(" ");
  await Deno.writeTextFile(
    `${scratch.path}/deno.json`,
    JSON.stringify({ tasks: { up: task } }),
  );
  await using up = startLauncher(scratch, {
    command: [Deno.execPath(), "task", "up"],
    cwd: scratch.path,
  });
  const state = await up.state();
  assert.notEqual(state.text.pid, up.pid);
  const launcher = Number(state.text.pid);
  up.signal("SIGKILL");
  await until(
    "the end of all",
    async () => (await running([launcher, ...allPids(state)])).length === 0,
  );
  assert.deepEqual(await stopOrder(scratch), [
    "edge-auth",
    "chat-worker",
    "key-admin",
  ]);
});

Deno.test("up cleans up after a launcher and a guardian that were both killed", async () => {
  await using scratch = await makeScratch();
  const orphans: number[] = [];
  {
    await using up = startLauncher(scratch);
    const state = await up.state();
    orphans.push(...allPids(state));
    const guardian = Number(
      await Deno.readTextFile(`${scratch.path}/run/guardian`),
    );
    // The launcher first would leave the guardian time to act.
    up.signal("SIGSTOP");
    Deno.kill(guardian, "SIGKILL");
    up.signal("SIGKILL");
    await up.exitCode;
  }
  assert.equal((await running(orphans)).length, orphans.length);
  await using up = startLauncher(scratch);
  const state = await until("the new up.json", async () => {
    const found = await readState(scratch);
    return found?.text.pid === up.pid && found;
  });
  assert.deepEqual(await running(orphans), []);
  assert.match(up.printed(), /Stopped what an earlier run left behind/);
  assert.equal((await running(allPids(state))).length, allPids(state).length);
});

Deno.test("up goes on when its guardian is killed, with a new one", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch);
  const state = await up.state();
  const mark = () => Deno.readTextFile(`${scratch.path}/run/guardian`);
  const first = await mark();
  Deno.kill(Number(first), "SIGKILL");
  await until("another guardian", async () => await mark() !== first);
  up.signal("SIGKILL");
  await until(
    "the end of all",
    async () => (await running(allPids(state))).length === 0,
  );
});

Deno.test("up hurries at a second Ctrl-C", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    env: { STAND_IN_FAULT: "edge-auth:deaf" },
  });
  const state = await up.state();
  up.signal("SIGINT");
  // The same Ctrl-C, passed on by a runner, is not a second one.
  up.signal("SIGINT");
  await until("the start of the stop", () => /Stopping/.test(up.printed()));
  await new Promise((resolve) => setTimeout(resolve, 400));
  assert.equal((await running(state.pids["edge-auth"] ?? [])).length, 1);
  up.signal("SIGINT");
  assert.equal(await up.exitCode, 130);
  assert.deepEqual(await running(allPids(state)), []);
});

Deno.test("up outlives its terminal under nohup, and only then", async (t) => {
  for (const nohup of [true, false]) {
    await t.step(nohup ? "nohup" : "plain", async () => {
      await using scratch = await makeScratch();
      await using up = startLauncher(scratch, {
        command: [...(nohup ? ["nohup"] : []), ...launcherCommand()],
      });
      const state = await up.state();
      up.signal("SIGHUP");
      if (!nohup) return assert.equal(await up.exitCode, 0);
      await until("a restart after the hang-up", async () => {
        // The launcher proves that it lives by what it does.
        const [worker] = (await readState(scratch))?.pids["chat-worker"] ?? [];
        if (worker === undefined) return false;
        if (worker !== state.pids["chat-worker"]?.[0]) return true;
        if (await isRunning(worker)) Deno.kill(worker, "SIGKILL");
      });
    });
  }
});
