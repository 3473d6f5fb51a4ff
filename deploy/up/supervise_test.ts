import assert from "node:assert/strict";
import { monotonicNow } from "@gateway/shared/process/clock";
import { openLogFile } from "./files.ts";
import { supervise, type Supervised, type Unit } from "./supervise.ts";
import { isRunning, makeScratch } from "../../tests/up/stand_ins/launcher.ts";
import { UpError } from "./up_error.ts";

const GRACE_MS = 5_000;

Deno.test("supervise() gives a start up that cannot succeed", async (t) => {
  const cases: {
    name: string;
    program: string[];
    readyMs: number;
    starts: number;
    says: RegExp;
    code: number;
  }[] = [
    {
      name: "never ready",
      program: ["/bin/sh", "-c", "sleep 60"],
      readyMs: 50,
      starts: 3,
      says: /x does not start: it was not ready after 0.05 s/,
      code: 1,
    },
    {
      name: "no such program",
      program: ["/nowhere/server"],
      readyMs: 5_000,
      starts: 0,
      says: /x does not start[^]*\/nowhere\/server/,
      code: 1,
    },
    {
      name: "wrong configuration, which no second try mends",
      program: ["/bin/sh", "-c", "echo 'PORT is bad' >&2; exit 78"],
      readyMs: 5_000,
      starts: 1,
      says: /x found a mistake in its configuration\n {2}PORT is bad/,
      code: 78,
    },
    {
      name: "last words on standard output",
      program: ["/bin/sh", "-c", "echo 'Bad file format'; exit 1"],
      readyMs: 5_000,
      starts: 3,
      says: /exit code 1\n {2}Bad file format/,
      code: 1,
    },
  ];
  for (const { name, program, readyMs, starts, says, code } of cases) {
    await t.step(name, async () => {
      await using under = await superviseScript(program, { readyMs });
      await assert.rejects(under.supervised.firstReady, (error) => {
        assert.ok(error instanceof UpError);
        assert.match(error.message, says);
        assert.equal(error.exitCode, code);
        return true;
      });
      assert.equal(under.started.length, starts);
      for (const pid of under.started) assert.ok(!await isRunning(pid));
    });
  }
});

Deno.test("supervise() waits for the ready text, and stop() thaws a frozen process", async () => {
  await using under = await superviseScript(
    [
      "/bin/sh",
      "-c",
      "trap 'exit 0' TERM; echo Ready to serve; while :; do sleep 0.05; done",
    ],
    { readyText: "Ready to" },
  );
  assert.deepEqual(await under.supervised.firstReady, { port: 0, opsPort: 0 });
  const pid = under.supervised.pid() ?? 0;
  Deno.kill(pid, "SIGSTOP");
  const startedAt = performance.now();
  await under.supervised.stop(GRACE_MS);
  assert.ok(performance.now() - startedAt < GRACE_MS);
  assert.ok(!await isRunning(pid));
  assert.equal(under.supervised.pid(), undefined);
});

interface UnderTest extends AsyncDisposable {
  supervised: Supervised;
  started: number[];
}

async function superviseScript(
  [file = "", ...args]: string[],
  rest: Partial<Pick<Unit, "readyText" | "readyMs">>,
): Promise<UnderTest> {
  const scratch = await makeScratch();
  const log = openLogFile(`${scratch.path}/x.log`, assert.fail);
  const started: number[] = [];
  const supervised = supervise({
    name: "x",
    service: "edge-auth",
    program: () => ({
      file,
      args,
      env: { PATH: "/usr/bin:/bin" },
      cwd: scratch.path,
    }),
    readyMs: 5_000,
    ...rest,
  }, {
    now: monotonicNow,
    log,
    onChange() {
      const pid = supervised?.pid();
      if (pid !== undefined && pid !== started.at(-1)) started.push(pid);
    },
    warn() {},
    onEvent() {},
  });
  return {
    supervised,
    started,
    async [Symbol.asyncDispose]() {
      await supervised.stop(100);
      await log.close();
      await scratch[Symbol.asyncDispose]();
    },
  };
}
