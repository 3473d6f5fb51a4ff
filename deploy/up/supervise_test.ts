import assert from "node:assert/strict";
import { isRunning, makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { LogFile } from "./files.ts";
import { Supervised } from "./supervise.ts";

const GRACE_MS = 5_000;
const SCRIPT =
  "trap 'exit 0' TERM; echo Ready to serve; while :; do sleep 0.05; done";

async function supervise(file: string) {
  await using stack = new AsyncDisposableStack();
  const scratch = stack.use(await makeScratch());
  const env = { PATH: "/usr/bin:/bin" };
  const supervised = new Supervised({
    name: "x",
    service: "edge-auth",
    program: { file, args: ["-c", SCRIPT], env, cwd: scratch.path },
    readyText: "Ready to",
  }, {
    log: new LogFile(`${scratch.path}/x.log`, assert.fail),
    onChange() {},
    warn() {},
    onEvent() {},
  });
  stack.defer(() => supervised.stop(0));
  const running = stack.move();
  return {
    supervised,
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

Deno.test("Supervised does not retry a program that does not exist", async () => {
  await using under = await supervise("/nowhere/server");
  await assert.rejects(
    under.supervised.firstReady,
    /x does not start[^]*\/nowhere\/server/,
  );
});

Deno.test("Supervised waits for the ready text, and stop() ends a frozen process", async () => {
  await using under = await supervise("/bin/sh");
  await under.supervised.firstReady;
  const pid = under.supervised.pid ?? 0;
  Deno.kill(pid, "SIGSTOP");
  const startedAt = performance.now();
  await under.supervised.stop(GRACE_MS);
  assert.ok(performance.now() - startedAt < GRACE_MS);
  assert.ok(!await isRunning(pid));
  assert.equal(under.supervised.pid, undefined);
});
