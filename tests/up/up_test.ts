// Promise: `up` starts everything, restarts what dies, and keeps keys.
import assert from "node:assert/strict";
import type { UpState } from "../../deploy/up/state.ts";
import { askRedis } from "./stand_ins/ask_redis.ts";
import {
  allPids,
  type Launcher,
  running,
  standInEnv,
  startLauncher,
} from "./stand_ins/launcher.ts";
import { freePort } from "../support/servers/local_server.ts";
import { until } from "../support/wait_for.ts";

/** What was asked for runs, and only its user can read what it writes. */
async function assertStarted(up: Launcher, state: UpState): Promise<void> {
  const counts = Object.entries(state.pids)
    .map(([service, pids]) => [service, pids.length]);
  assert.deepEqual(Object.fromEntries(counts), {
    nats: 1,
    redis: 1,
    "model-simulator": 1,
    "key-admin": 1,
    "chat-worker": 2,
    "media-worker": 2,
    "edge-auth": 2,
  });
  assert.equal(state.pid, up.pid);
  if (Deno.build.os === "linux") {
    const args = ["-o", "cls=", "-p", allPids(state).join()];
    const { stdout } = await new Deno.Command("ps", { args }).output();
    // The class of SCHED_BATCH.
    assert.match(new TextDecoder().decode(stdout), /^( *B\n)+$/);
  }
  assert.equal(new Set(state.edge_urls).size, 2);
  assert.equal(state.edge_urls[0], state.edge_url);
  assert.equal(state.setup_url, `${state.console_url}/setup#one-time`);
  for (const file of ["run/up.json", "data/first_key.json"]) {
    const { mode } = await Deno.stat(`${up.path}/${file}`);
    assert.equal((mode ?? 0) & 0o777, 0o600, file);
  }
}

/** The summary has what one needs for the first request. */
async function assertSummary(up: Launcher, state: UpState): Promise<void> {
  await up.prints(/Ctrl-C stops/);
  const parts = [
    `${state.edge_url}/v1\n`,
    state.api_key ?? "no key",
    `${state.setup_url}\n`,
    `curl -N ${state.edge_url}/v1/chat/completions`,
    `"model":"neutral-3.7-plus","stream":true`,
    up.logs,
  ];
  const missing = parts.filter((part) => !up.printed().includes(part));
  assert.deepEqual(missing, [], up.printed());
}

/** Promise: one command provides a URL and a key, and Ctrl-C leaves no process. */
Deno.test("up starts everything, prints the URLs, and stops in order on SIGTERM", async () => {
  await using up = startLauncher({
    args: "--port 0 --console-port 0 --edges 2 --workers 2 --media-workers 2"
      .split(" "),
  });
  const state = await until(async () => {
    const found = await up.state();
    return found.setup_url !== null && found;
  });
  await assertStarted(up, state);
  await assertSummary(up, state);
  // A frozen process cannot handle the signal until it is woken.
  for (const pid of state.pids["chat-worker"] ?? []) Deno.kill(pid, "SIGSTOP");
  up.signal("SIGTERM");
  assert.equal(await up.exitCode, 0);
  assert.deepEqual(await running(allPids(state)), []);
  assert.equal(await up.readState(), undefined);
  assert.deepEqual(await up.stopOrder(), [
    "edge-auth",
    "edge-auth",
    "media-worker",
    "media-worker",
    "chat-worker",
    "chat-worker",
    "key-admin",
    "model-simulator",
  ]);
});

Deno.test("up keeps data and first key across a restart, and reports a deleted key", async () => {
  await using first = startLauncher();
  const { api_key: key, redis_url } = await first.state();
  assert.match(key ?? "", /^sk-Cg/);
  assert.match(await askRedis(redis_url, "SET kept yes"), /OK/);
  // Ctrl-C at the terminal.
  first.signal("SIGINT");
  assert.equal(await first.exitCode, 0);
  {
    await using up = startLauncher({ dir: first.path });
    const { api_key, redis_url } = await up.state();
    assert.equal(api_key, key);
    assert.match(await askRedis(redis_url, "GET kept"), /yes/);
    await askRedis(redis_url, "FLUSHALL");
  }
  await using up = startLauncher({ dir: first.path });
  assert.equal((await up.state()).api_key, null);
  await up.prints(/first key no longer works[^]*deno task keys create/);
});

Deno.test("up starts a simulator, with a warning, only when no model server is given", async () => {
  for (const baseUrl of ["", `http://127.0.0.1:${freePort()}/v1`]) {
    const env = { UPSTREAM_BASE_URL: baseUrl };
    await using up = startLauncher({ env });
    const { ops_urls, pids } = await up.state();
    const answers = baseUrl === ""
      ? /Models +neutral-3.7-plus -> built-in simulator \(not a real model\)/
      : /neutral-3.7-plus -> http:\S+\/v1 : not reachable \(connection refused\)/;
    await up.prints(answers);
    const worker = await standInEnv(ops_urls["chat-worker"]?.[0]);
    if (baseUrl !== "") {
      assert.equal(pids["model-simulator"], undefined);
      assert.equal(pids["media-worker"], undefined);
      assert.equal(worker.MODEL_SIMULATOR_URL, undefined);
      return assert.doesNotMatch(up.printed(), /simulator/);
    }
    const url = worker.MODEL_SIMULATOR_URL ?? "";
    assert.match(url, /\/v1$/);
    assert.equal((await standInEnv(url)).service, "model-simulator");
    assert.match(up.printed(), /No model server is configured: the simulator/);
  }
});

Deno.test("up stops while it starts", async () => {
  await using up = startLauncher({
    env: { STAND_IN_FAULT: "edge-auth:never-ready" },
  });
  const pids = await until(async () => {
    const found = await up.startedPids().catch(() => []);
    return found.length === 5 && found;
  });
  up.signal("SIGTERM");
  assert.equal(await up.exitCode, 0);
  assert.deepEqual(await running(pids), []);
});

Deno.test("up restarts a service that dies, on the same port", async () => {
  await using up = startLauncher();
  const before = await up.state();
  const services = ["edge-auth", "redis"];
  for (const service of services) {
    for (const pid of before.pids[service] ?? []) Deno.kill(pid, "SIGKILL");
  }
  const after = await until(async () => {
    const state = await up.readState();
    return services.every((service) => {
      const [pid] = state?.pids[service] ?? [];
      return pid !== undefined && !before.pids[service]?.includes(pid) &&
        up.printed().includes(`${service} is back`);
    }) && state;
  });
  assert.equal(after.edge_url, before.edge_url);
  const models = await fetch(`${after.edge_url}/v1/models`);
  await models.body?.cancel();
  assert.equal(models.status, 200);
  assert.match(up.printed(), /edge-auth was ended by SIGKILL; restarting it/);
  // The key of the summary is still in Redis.
  assert.match(await askRedis(after.redis_url, "GET key_standin"), /enabled/);
});

Deno.test("up retries to write up.json, and can stop meanwhile", async () => {
  await using up = startLauncher();
  const before = await up.state();
  // As on a full disk, the new text cannot be written.
  const draft = `${up.path}/run/up.json.tmp`;
  await Deno.mkdir(`${draft}/x`, { recursive: true });
  const [worker = 0] = before.pids["chat-worker"] ?? [];
  Deno.kill(worker, "SIGKILL");
  await up.prints(/Cannot write .*up.json/);
  assert.equal(up.printed().split("Cannot write").length, 2);
  await Deno.remove(draft, { recursive: true });
  const [pid = 0] = await until(async () => {
    const pids = (await up.readState())?.pids["chat-worker"] ?? [];
    return pids.length > 0 && !pids.includes(worker) && pids;
  });
  assert.deepEqual(await running([pid]), [pid]);
  await Deno.remove(`${up.path}/run`, { recursive: true });
  up.signal("SIGINT");
  assert.equal(await up.exitCode, 0, up.printed());
  assert.doesNotMatch(up.printed(), /Fault/);
});
