import assert from "node:assert/strict";
import { redisCall } from "./redis_call.ts";
import {
  allPids,
  isRunning,
  launcherCommand,
  makeScratch,
  readState,
  running,
  type Scratch,
  standInEnv,
  startLauncher,
  until,
} from "./testing/launcher.ts";

/** Promise: one command gives an address and a key, and Ctrl-C leaves nothing. */
Deno.test("up starts all, says where it is, and stops in order on SIGTERM", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    args: [
      ...["--port", "0", "--console-port", "0"],
      ...["--edges", "2", "--workers", "2"],
    ],
    env: { UPSTREAM_API_KEY: "sk-upstream-secret" },
  });
  const state = await up.state();
  const { text, pids } = state;
  assert.deepEqual(
    Object.entries(pids).map(([name, list]) => [name, list.length]).sort(),
    [
      ["chat-worker", 2],
      ["edge-auth", 2],
      ["key-admin", 1],
      ["nats", 1],
      ["redis", 1],
    ],
  );
  assert.equal(text.pid, up.pid);
  const edgeUrls = text.edge_urls;
  assert.ok(Array.isArray(edgeUrls) && new Set(edgeUrls).size === 2);
  assert.equal(edgeUrls[0], state.edgeUrl);
  assert.equal(text.setup_url, `${text.console_url}/setup#one-time`);

  const file = await Deno.stat(`${scratch.path}/run/up.json`);
  assert.equal((file.mode ?? 0) & 0o777, 0o600);
  const key = await Deno.stat(`${scratch.path}/data/first_key.json`);
  assert.equal((key.mode ?? 0) & 0o777, 0o600);

  await until("the summary", () => up.printed().includes("Ctrl-C stops"));
  for (
    const part of [
      `${state.edgeUrl}/v1\n`,
      state.apiKey,
      `${text.setup_url}\n`,
      `curl -N ${state.edgeUrl}/v1/chat/completions`,
      `"model":"stand-in-1","stream":true`,
      `${scratch.path}/run/logs`,
    ]
  ) assert.ok(up.printed().includes(part), `${part} in ${up.printed()}`);

  const ops = text.ops_urls;
  assert.ok(typeof ops === "object" && ops !== null);
  const env = new Map<string, Record<string, string>>();
  for (const [service, urls] of Object.entries(ops)) {
    env.set(service, await standInEnv(urls[0]));
  }
  for (const service of ["edge-auth", "key-admin"]) {
    const { REDIS_URL, NATS_URL, HOST, OPS_PORT, UPSTREAM_API_KEY } =
      env.get(service) ?? {};
    assert.deepEqual(
      { REDIS_URL, NATS_URL, HOST, OPS_PORT, UPSTREAM_API_KEY },
      {
        REDIS_URL: text.redis_url,
        NATS_URL: text.nats_url,
        HOST: "127.0.0.1",
        OPS_PORT: "0",
        UPSTREAM_API_KEY: undefined,
      },
    );
  }
  assert.equal(env.get("key-admin")?.PUBLIC_URL, text.console_url);
  assert.equal(env.get("chat-worker")?.UPSTREAM_API_KEY, "sk-upstream-secret");
  assert.equal(env.get("chat-worker")?.NATS_URL, text.nats_url);

  up.signal("SIGTERM");
  assert.equal(await up.exitCode, 0);
  assert.deepEqual(await running(allPids(state)), []);
  assert.equal(await readState(scratch), undefined);
  assert.deepEqual(await stopOrder(scratch), [
    "edge-auth",
    "edge-auth",
    "chat-worker",
    "chat-worker",
    "key-admin",
  ]);
});

Deno.test("up keeps data and first key over a restart, and says when the key was deleted", async (t) => {
  await using scratch = await makeScratch();
  let key = "";
  await t.step("first run", async () => {
    await using up = startLauncher(scratch);
    const state = await up.state();
    key = state.apiKey;
    assert.match(key, /^sk-Cg/);
    const [reply] = await redisCall(
      String(state.text.redis_url),
      [["SET", "kept", "yes"]],
      2_000,
    );
    assert.equal(reply, "OK");
    // Ctrl-C at the terminal.
    up.signal("SIGINT");
    assert.equal(await up.exitCode, 0);
  });
  await t.step("second run", async () => {
    await using up = startLauncher(scratch);
    const state = await up.state();
    assert.equal(state.apiKey, key);
    const url = String(state.text.redis_url);
    assert.deepEqual(await redisCall(url, [["GET", "kept"]], 2_000), ["yes"]);
    await redisCall(url, [["FLUSHALL"]], 2_000);
  });
  await t.step("after the key was deleted", async () => {
    await using up = startLauncher(scratch);
    assert.equal((await up.state()).text.api_key, null);
    await until("the note", () => /first key was deleted/.test(up.printed()));
    assert.match(up.printed(), /deno task keys create/);
  });
});

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

Deno.test("up refuses a second launcher in the same directory", async () => {
  await using scratch = await makeScratch();
  await using first = startLauncher(scratch);
  const state = await first.state();
  await using second = startLauncher(scratch);
  assert.equal(await second.exitCode, 1);
  assert.match(second.printed(), /already running/);
  assert.match(second.printed(), new RegExp(`pid ${first.pid}\\b`));
  // The refused one has touched nothing.
  assert.deepEqual((await readState(scratch))?.text, state.text);
  assert.equal((await running(allPids(state))).length, allPids(state).length);
});

Deno.test("up starts a service again that dies, on the same port", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch);
  const before = await up.state();
  for (const service of ["edge-auth", "redis"]) {
    for (const pid of before.pids[service] ?? []) Deno.kill(pid, "SIGKILL");
  }
  const after = await until("new processes in up.json", async () => {
    const state = await readState(scratch);
    return ["edge-auth", "redis"].every((service) => {
      const [pid] = state?.pids[service] ?? [];
      return pid !== undefined && !before.pids[service]?.includes(pid);
    }) && /redis is back/.test(up.printed()) &&
      /edge-auth is back/.test(up.printed()) && state;
  });
  assert.equal(after.edgeUrl, before.edgeUrl);
  const models = await fetch(`${after.edgeUrl}/v1/models`);
  await models.body?.cancel();
  assert.equal(models.status, 200);
  assert.match(up.printed(), /edge-auth was ended by SIGKILL/);
  // The key of the summary is still in Redis.
  const [count] = await redisCall(
    String(after.text.redis_url),
    [["DBSIZE"]],
    2_000,
  );
  assert.equal(count, 2);
});

Deno.test("up shows warnings of services, and repeats once", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    env: { STAND_IN_FAULT: "chat-worker:warns" },
  });
  await up.state();
  const line = "chat-worker warn: redis_slow: took_ms=250\n";
  await until("the warning", () => up.printed().includes(line));
  assert.equal(up.printed().split("redis_slow").length - 1, 1);
  const log = await Deno.readTextFile(
    `${scratch.path}/run/logs/chat-worker.log`,
  );
  assert.equal(log.split("redis_slow").length - 1, 3);
});

Deno.test("up works without the first key", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    env: { STAND_IN_FAULT: "keys:dies" },
  });
  assert.equal((await up.state()).text.api_key, null);
  await until("the reason", () => /Cannot reach redis/.test(up.printed()));
});

Deno.test("up stops while it starts", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    env: { STAND_IN_FAULT: "edge-auth:never-ready" },
  });
  const pids = await until("the children", async () => {
    try {
      const text = await Deno.readTextFile(`${scratch.path}/run/children`);
      const found = [...text.matchAll(/"pid":(\d+)/g)].map(([, pid]) =>
        Number(pid)
      );
      return found.length === 5 && found;
    } catch {
      return false;
    }
  });
  up.signal("SIGTERM");
  assert.equal(await up.exitCode, 0);
  assert.deepEqual(await running(pids), []);
});

Deno.test("up fails with a clear message", async (t) => {
  await using busy = await listenSomewhere();
  const cases: {
    name: string;
    args?: string[];
    env?: Record<string, string>;
    code: number;
    says: RegExp[];
  }[] = [
    {
      name: "busy port",
      args: ["--port", String(busy.port), "--console-port", "0"],
      code: 1,
      says: [new RegExp(`Port ${busy.port} is in use`), /--port/],
    },
    {
      name: "busy console port",
      args: ["--port", "0", "--console-port", String(busy.port)],
      code: 1,
      says: [/--console-port/],
    },
    {
      name: "service with a mistake in its configuration",
      env: { STAND_IN_FAULT: "chat-worker:misconfigured" },
      code: 78,
      says: [/chat-worker/, /SLOTS must be a whole number/],
    },
    {
      name: "service that keeps dying",
      env: { STAND_IN_FAULT: "key-admin:dies" },
      code: 1,
      says: [
        /key-admin does not start: it ended with exit code 1/,
        /Cannot bind the flux capacitor/,
        /logs\/key-admin\.log/,
      ],
    },
    {
      name: "Redis that is not there",
      env: { REDIS_URL: "redis://:s3cret@127.0.0.1:1" },
      code: 78,
      says: [/REDIS_URL/, /127\.0\.0\.1:1"/, /connection refused/],
    },
    {
      name: "NATS that is something else",
      env: { NATS_URL: `nats://127.0.0.1:${busy.port}` },
      code: 78,
      says: [/NATS_URL/, /not NATS/],
    },
    {
      name: "list of models that is not there",
      args: ["--models", "/nowhere/models.json"],
      code: 78,
      says: [/Cannot read the list of models: .*\/nowhere\/models\.json/],
    },
    {
      name: "address that is not this machine's",
      args: ["--host", "192.0.2.1", "--port", "0"],
      code: 1,
      says: [/Cannot listen on 192\.0\.2\.1:0/],
    },
    {
      name: "bad options, all at once",
      args: ["--workers", "0", "--prot", "1"],
      code: 2,
      says: [/--workers must be a whole number/, /did you mean --port\?/],
    },
    { name: "help", args: ["--help"], code: 0, says: [/--console-port P/] },
  ];
  for (const { name, args, env, code, says } of cases) {
    await t.step(name, async () => {
      await using scratch = await makeScratch();
      await using up = startLauncher(scratch, {
        ...(args === undefined ? {} : { args }),
        ...(env === undefined ? {} : { env }),
      });
      assert.equal(await up.exitCode, code, up.printed());
      for (const part of says) assert.match(up.printed(), part);
      assert.doesNotMatch(up.printed(), /s3cret/);
      assert.equal(await readState(scratch), undefined);
    });
  }
});

Deno.test("up uses servers that NATS_URL and REDIS_URL name", async () => {
  await using others = await makeScratch();
  await using owner = startLauncher(others);
  const { text } = await owner.state();
  await using scratch = await makeScratch();
  const env = {
    NATS_URL: `nats://127.0.0.1:1,${text.nats_url}`,
    REDIS_URL: String(text.redis_url),
  };
  await using up = startLauncher(scratch, { env });
  const state = await up.state();
  assert.equal(state.text.nats_url, env.NATS_URL);
  assert.equal(state.text.redis_url, env.REDIS_URL);
  assert.deepEqual([state.pids.nats, state.pids.redis], [[], []]);
  up.signal("SIGTERM");
  assert.equal(await up.exitCode, 0);
  // Somebody else's servers are not stopped.
  assert.deepEqual(await redisCall(env.REDIS_URL, [["PING"]], 2_000), ["PONG"]);
});

Deno.test("up says what is wrong with a Redis whose data is broken", async () => {
  await using scratch = await makeScratch();
  await Deno.mkdir(`${scratch.path}/data/redis/appendonlydir`, {
    recursive: true,
  });
  await Deno.writeTextFile(
    `${scratch.path}/data/redis/appendonlydir/appendonly.aof.manifest`,
    "this is no manifest\n",
  );
  await using up = startLauncher(scratch);
  assert.equal(await up.exitCode, 1);
  assert.match(up.printed(), /redis does not start/);
  assert.match(up.printed(), /AOF manifest/);
});

Deno.test("up installs missing servers with the package manager", async (t) => {
  const paths = await Promise.all(
    ["nats-server", "redis-server", "sh", "rm", "sleep", "cp", "tr"]
      .map(whereIs),
  );
  const [nats = "", redis = "", ...tools] = paths;
  await using scratch = await makeScratch();
  const bin = `${scratch.path}/bin`;
  await Deno.mkdir(bin);
  for (const tool of tools) {
    await Deno.symlink(tool, `${bin}/${tool.split("/").at(-1)}`);
  }
  const env = { PATH: bin, STAND_IN_USUAL_DIRS: "/nowhere" };

  await t.step("nothing can install: says what to type", async () => {
    await using up = startLauncher(scratch, { env });
    assert.equal(await up.exitCode, 1);
    assert.match(up.printed(), /Cannot find nats-server and redis-server/);
    assert.match(up.printed(), /sudo apt-get install nats-server redis-server/);
    assert.match(up.printed(), /brew install nats-server redis/);
  });

  // As on a fresh machine: the first try finds no lists, the second works.
  const script = `#!/bin/sh
echo "$@" >> ${scratch.path}/apt.txt
case "$*" in
  update*) : > ${scratch.path}/lists ;;
  install*)
    [ -e ${scratch.path}/lists ] || { echo "E: Unable to locate package" >&2; exit 100; }
    ln -s ${nats} ${bin}/nats-server
    ln -s ${redis} ${bin}/redis-server ;;
esac
`;
  await Deno.writeTextFile(`${bin}/apt-get`, script, { mode: 0o755 });
  await Deno.symlink(await whereIs("ln"), `${bin}/ln`);
  // Root needs no sudo; others get one that asks nothing.
  await Deno.writeTextFile(
    `${bin}/sudo`,
    `#!/bin/sh\nshift\nexec "$@"\n`,
    { mode: 0o755 },
  );
  await Deno.symlink(await whereIs("env"), `${bin}/env`);
  await Deno.symlink(await whereIs("true"), `${bin}/true`);

  await t.step("apt-get installs, after fetching its lists", async () => {
    await using up = startLauncher(scratch, { env });
    await up.state();
    assert.match(
      up.printed(),
      /Installing nats-server and redis-server with apt-get/,
    );
    const calls = (await Deno.readTextFile(`${scratch.path}/apt.txt`)).trim()
      .split("\n").map((line) => line.split(" ")[0]);
    assert.deepEqual(calls, ["install", "update", "install"]);
  });
});

/** The services in the order in which they were told to stop, by their logs. */
async function stopOrder(scratch: Scratch): Promise<string[]> {
  const stops: { service: string; atMs: number }[] = [];
  for await (const { name } of Deno.readDir(`${scratch.path}/run/logs`)) {
    const text = await Deno.readTextFile(`${scratch.path}/run/logs/${name}`);
    const [, atMs] = /"event":"stopped","at_ms":(\d+)/.exec(text) ?? [];
    if (atMs === undefined) continue;
    const service = name.replace(/(-\d+)?\.log$/, "");
    stops.push({ service, atMs: Number(atMs) });
  }
  stops.sort((a, b) => a.atMs - b.atMs);
  return stops.map(({ service }) => service);
}

async function whereIs(program: string): Promise<string> {
  const { stdout } = await new Deno.Command("sh", {
    args: [
      "-c",
      `PATH="$PATH:/usr/sbin:/usr/local/sbin"; command -v "$0"`,
      program,
    ],
  }).output();
  return new TextDecoder().decode(stdout).trim();
}

/** Something that listens and greets like no server we know. */
async function listenSomewhere(): Promise<AsyncDisposable & { port: number }> {
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const greet = async () => {
    for await (const connection of listener) {
      await connection.write(new TextEncoder().encode("SSH-2.0-x\r\n"));
      connection.close();
    }
  };
  const greeting = greet();
  await Promise.resolve();
  return {
    port: listener.addr.port,
    async [Symbol.asyncDispose]() {
      listener.close();
      await greeting;
    },
  };
}
