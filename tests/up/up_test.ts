import assert from "node:assert/strict";
import {
  allPids,
  makeScratch,
  readState,
  running,
  standInEnv,
  startedPids,
  startLauncher,
  type State,
  stopOrder,
  until,
} from "./stand_ins/launcher.ts";
import { askRedis } from "./stand_ins/redis.ts";

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
  const state = await until("the set-up link", async () => {
    const found = await up.state();
    return found.text.setup_url !== null && found;
  });
  const { text, pids } = state;
  assert.deepEqual(
    Object.entries(pids).map(([name, list]) => [name, list.length]).sort(),
    [
      ["chat-worker", 2],
      ["edge-auth", 2],
      ["key-admin", 1],
      ["model-simulator", 1],
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
    "model-simulator",
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
    assert.equal(await askRedis(state.text.redis_url, "SET kept yes"), "OK");
    // Ctrl-C at the terminal.
    up.signal("SIGINT");
    assert.equal(await up.exitCode, 0);
  });
  await t.step("second run", async () => {
    await using up = startLauncher(scratch);
    const state = await up.state();
    assert.equal(state.apiKey, key);
    assert.equal(await askRedis(state.text.redis_url, "GET kept"), "yes");
    await askRedis(state.text.redis_url, "FLUSHALL");
  });
  await t.step("after the key was deleted", async () => {
    await using up = startLauncher(scratch);
    assert.equal((await up.state()).text.api_key, null);
    await until("the note", () => /first key was deleted/.test(up.printed()));
    assert.match(up.printed(), /deno task keys create/);
  });
});

Deno.test("up starts a simulator, and says so, only when no model server is given", async () => {
  await using scratch = await makeScratch();
  const address = (state: State) =>
    standInEnv(String(Object(state.text.ops_urls)["chat-worker"][0]))
      .then((env) => env.MODEL_SIMULATOR_URL);
  {
    await using up = startLauncher(scratch);
    const state = await up.state();
    const simulator = new URL(String(await address(state)));
    assert.equal(simulator.pathname, "/v1");
    assert.equal(await (await fetch(simulator)).text(), "simulator");
    assert.match(up.printed(), /No model server is given: a simulator answers/);
  }
  await using up = startLauncher(scratch, {
    env: { UPSTREAM_BASE_URL: "http://127.0.0.1:1/v1" },
  });
  const state = await up.state();
  assert.equal(state.pids["model-simulator"], undefined);
  assert.equal(await address(state), undefined);
  assert.doesNotMatch(up.printed(), /simulator/);
});

Deno.test("up stops while it starts", async () => {
  await using scratch = await makeScratch();
  await using up = startLauncher(scratch, {
    env: { STAND_IN_FAULT: "edge-auth:never-ready" },
  });
  const pids = await until("the services", async () => {
    const found = await startedPids(scratch).catch(() => []);
    return found.length === 4 && found;
  });
  up.signal("SIGTERM");
  assert.equal(await up.exitCode, 0);
  assert.deepEqual(await running(pids), []);
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
  assert.equal(await askRedis(env.REDIS_URL, "PING"), "PONG");
});
