import assert from "node:assert/strict";
import { isRunning, makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { LogFile } from "./files.ts";
import { Supervised } from "./supervise.ts";
import { UpError } from "./terminal.ts";

const GRACE_MS = 5_000;

Deno.test("Supervised does not retry a start that cannot succeed", async (t) => {
  const cases: [name: string, program: string[], says: RegExp, code: number][] =
    [
      [
        "never ready",
        ["/bin/sh", "-c", "sleep 60"],
        /x does not start: it was not ready after 0.05 s/,
        1,
      ],
      [
        "no such program",
        ["/nowhere/server"],
        /x does not start[^]*\/nowhere\/server/,
        1,
      ],
    ];
  for (const [name, program, says, code] of cases) {
    await t.step(name, async () => {
      await using under = await superviseScript(program, { readyMs: 50 });
      await assert.rejects(under.supervised.firstReady, (error) => {
        assert.ok(error instanceof UpError);
        assert.match(error.message, says);
        assert.equal(error.exitCode, code);
        return true;
      });
      for (const pid of under.started) assert.ok(!await isRunning(pid));
    });
  }
});

Deno.test("Supervised waits for the ready text, and stop() ends a frozen process", async () => {
  await using under = await superviseScript(
    [
      "/bin/sh",
      "-c",
      "trap 'exit 0' TERM; echo Ready to serve; while :; do sleep 0.05; done",
    ],
    { readyText: "Ready to" },
  );
  await under.supervised.firstReady;
  const pid = under.supervised.pid ?? 0;
  Deno.kill(pid, "SIGSTOP");
  const startedAt = performance.now();
  await under.supervised.stop(GRACE_MS);
  assert.ok(performance.now() - startedAt < GRACE_MS);
  assert.ok(!await isRunning(pid));
  assert.equal(under.supervised.pid, undefined);
});

async function superviseScript(
  [file = "", ...args]: string[],
  { readyText, readyMs }: { readyText?: string; readyMs?: number },
) {
  const scratch = await makeScratch();
  const log = new LogFile(`${scratch.path}/x.log`, assert.fail);
  const started: number[] = [];
  const env = { PATH: "/usr/bin:/bin" };
  const supervised: Supervised = new Supervised({
    name: "x",
    service: "edge-auth",
    program: () => ({ file, args, env, cwd: scratch.path }),
    ...readyText === undefined ? {} : { readyText },
  }, {
    log,
    onChange() {
      if (supervised.pid !== undefined) started.push(supervised.pid);
    },
    warn() {},
    onEvent() {},
    ...readyMs === undefined ? {} : { readyMs },
  });
  return {
    supervised,
    started,
    async [Symbol.asyncDispose]() {
      await supervised.stop(100);
      await scratch[Symbol.asyncDispose]();
    },
  };
}
