// Promise: what keeps `up` from starting is said in a sentence, and nothing is left.
import assert from "node:assert/strict";
import {
  allPids,
  type LauncherOptions,
  makeScratch,
  running,
  startLauncher,
} from "./stand_ins/launcher.ts";

Deno.test("up refuses a second launcher in the same directory", async () => {
  await using first = startLauncher();
  const state = await first.state();
  await using second = startLauncher({ dir: first.path });
  assert.equal(await second.exitCode, 1);
  assert.match(second.printed(), /already running/);
  assert.match(second.printed(), new RegExp(`pid ${first.pid}\\b`));
  // The refused launcher has changed nothing.
  assert.deepEqual(await first.readState(), state);
  assert.equal((await running(allPids(state))).length, allPids(state).length);
});

Deno.test("up works without the first key, and shows warnings of services, repeated ones once", async () => {
  const STAND_IN_FAULT = "keys:dies chat-worker:warns";
  await using up = startLauncher({ env: { STAND_IN_FAULT } });
  assert.equal((await up.state()).api_key, null);
  await up.prints(/Cannot bind the flux/);
  await up.prints(/chat-worker warn: redis_slow \{"took_ms":250\}\n/);
  assert.equal(up.printed().split("redis_slow").length - 1, 1);
  const log = await Deno.readTextFile(`${up.logs}/chat-worker.log`);
  assert.equal(log.split("redis_slow").length - 1, 3);
});

/** A start of the launcher that fails, and what it ends with. */
interface FailedStart {
  code: number;
  message: RegExp;
  options: Pick<LauncherOptions, "args" | "env">;
}

/** With a port that is in use, and a search path whose NATS cannot be started. */
function failures(busy: string, broken: string): FailedStart[] {
  const fault = (STAND_IN_FAULT: string) => ({ env: { STAND_IN_FAULT } });
  const args = (text: string) => ({ args: text.split(" ") });
  return [
    {
      code: 1,
      message: new RegExp(`listen on 127.0.0.1:${busy}: .*in use[^]*--port`),
      options: args(`--port ${busy} --console-port 0`),
    },
    {
      code: 1,
      message: /with --console-port/,
      options: args(`--port 0 --console-port ${busy}`),
    },
    // An address that is not this machine's.
    {
      code: 1,
      message: /listen on 192\.0\.2\.1:0/,
      options: args("--host 192.0.2.1 --port 0"),
    },
    {
      code: 78,
      message: /chat-worker[^]*SLOTS must be a whole number/,
      options: fault("chat-worker:misconfigured"),
    },
    {
      code: 1,
      // Nothing of the log of earlier runs.

      message:
        /key-admin does not start: it ended with exit code 1\n {2}Cannot bind the[^]*logs\/key-admin\.log/,
      options: fault("key-admin:dies"),
    },
    {
      code: 1,
      message: /nats does not start: it cannot be started: /,
      options: { env: { PATH: broken } },
    },
    {
      code: 78,
      message: /REDIS_URL_FILE="\/nowhere\/redis"\n +cannot read it/,
      options: { env: { REDIS_URL_FILE: "/nowhere/redis" } },
    },
    {
      code: 0,
      message: /^Usage: deno task up[^]*--console-port <port>/m,
      options: args("--help"),
    },
  ];
}

Deno.test("up fails with a clear message", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const busy = String(listener.addr.port);
  await using programs = await makeScratch();
  await Deno.writeTextFile(
    `${programs.path}/nats-server`,
    "#!/nowhere/interpreter",
    { mode: 0o755 },
  );
  const broken = `${programs.path}:${Deno.env.get("PATH")}`;
  for (const { code, message, options } of failures(busy, broken)) {
    await using scratch = await makeScratch();
    const logs = `${scratch.path}/run/logs`;
    await Deno.mkdir(logs, { recursive: true });
    await Deno.writeTextFile(`${logs}/key-admin.log`, "Of an earlier run\n");
    await using up = startLauncher({ ...options, dir: scratch.path });
    assert.equal(await up.exitCode, code, up.printed());
    assert.match(up.printed(), message);
    assert.equal(await up.readState(), undefined);
  }
});
