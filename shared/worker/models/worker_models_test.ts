/** What a worker runs while its list changes. */
import assert from "node:assert/strict";
import {
  type BackendConfig,
  type CatalogFile,
  parseCatalog,
} from "../../models/catalog.ts";
import { silentLog } from "../../process/log.ts";
import { BackendPool } from "../../upstream/pool.ts";
import { LEAVING_MS } from "./model_pools.ts";
import { WorkerModels } from "./worker_models.ts";

type ModelEntry = CatalogFile["models"][number];

/** A model of one backend, with these members. */
const model = (id: string, backend: object = {}): ModelEntry => ({
  id,
  backends: [{
    type: "openai",
    base_url: "http://a/v1",
    model: id,
    ...backend,
  }],
});

const server = (name: string, more: object = {}) => ({
  type: "openai" as const,
  name,
  base_url: `http://${name}/v1`,
  ...more,
});

function setup() {
  const catalog = parseCatalog({ models: [model("first")] });
  const lists = new Map<string, readonly string[]>();
  /** The keys with which backends and servers were opened, and which were closed. */
  const opened: string[] = [];
  const closed: string[] = [];
  let nowMs = 0;
  const sleep = (_: number, signal: AbortSignal) => {
    const { promise, reject } = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => reject(signal.reason));
    return promise;
  };
  const clocks = { now: () => nowMs, random: () => 0.5, sleep };
  const backendOf = (id: string, config: BackendConfig) => ({
    config,
    close: () => void closed.push(id),
  });
  const models = new WorkerModels({
    ...clocks,
    catalog,
    family: "chat",
    log: silentLog,
    openPool(id, backends, keys) {
      opened.push(`${id} ${keys.get("KEY") ?? ""}`.trim());
      return new BackendPool({
        ...clocks,
        backends: backends.map((each) => backendOf(id, each)),
        onAttempt: () => {},
        onOddity: () => {},
      });
    },
    openServer: ({ name }, keys) => ({
      ask() {
        opened.push(`${name} ${keys.get("KEY") ?? ""}`.trim());
        const names = lists.get(name);
        return names === undefined
          ? Promise.reject(new Error("Out of reach"))
          : Promise.resolve(names);
      },
      close: () => void closed.push(name),
    }),
  });
  return {
    catalog,
    models,
    lists,
    opened,
    closed,
    follow(file: { models?: ModelEntry[]; servers?: object[] }, key = "k1") {
      const { file: parsed } = parseCatalog(file);
      models.follow({ file: parsed, keys: new Map([["KEY", key]]) });
      return models.firstAnswers();
    },
    wait(ms: number) {
      nowMs += ms;
      models.tick();
    },
    [Symbol.dispose]: () => models.close(),
  };
}

Deno.test("a pool stays while nothing of its model changes, whatever else does", async () => {
  using t = setup();
  await t.follow({ models: [model("a"), model("b")] });
  const pool = t.models.pools.get("a");
  await t.follow({ models: [model("c"), model("a"), model("b")] }, "k2");
  assert.equal(t.models.pools.get("a"), pool);
  await t.follow({ models: [{ ...model("a"), owned_by: "us" }] });
  assert.equal(t.models.pools.get("a"), pool);
  assert.equal(t.catalog.get("a")?.owned_by, "us");
  assert.deepEqual(t.closed, []);
});

const CHANGES: { title: string; backend: object; key: string }[] = [
  { title: "another address", backend: { base_url: "http://b/v1" }, key: "k1" },
  { title: "another name at the server", backend: { model: "z" }, key: "k1" },
  { title: "another weight", backend: { weight: 7 }, key: "k1" },
  { title: "a header", backend: { headers: { "x-team": "ours" } }, key: "k1" },
  { title: "a deadline", backend: { deadlines: { total_ms: 1 } }, key: "k1" },
  { title: "another dialect", backend: { dialect: "vllm" }, key: "k1" },
  { title: "another value of its key", backend: {}, key: "k2" },
];

for (const { title, backend, key } of CHANGES) {
  Deno.test(`the next request uses a new pool after ${title}`, async () => {
    using t = setup();
    const before = { api_key_env: "KEY" };
    await t.follow({ models: [model("a", before), model("b")] });
    const pool = t.models.pools.get("a");
    const other = t.models.pools.get("b");
    const after = { ...before, ...backend };
    await t.follow({ models: [model("a", after), model("b")] }, key);
    assert.deepEqual(t.closed, ["a"], "its idle connections are closed");
    assert.notEqual(t.models.pools.get("a"), pool);
    assert.equal(t.models.pools.get("b"), other);
    assert.equal(t.opened.at(-1), `a ${key}`);
  });
}

Deno.test("a request that runs ends on the pool with which it has begun", async () => {
  using t = setup();
  await t.follow({ models: [model("a")] });
  const answer = Promise.withResolvers<string>();
  const { signal } = new AbortController();
  const running = t.models.pools.get("a")?.run(
    { requestId: "0", signal },
    ({ config: { base_url } }) => answer.promise.then(() => base_url),
  );
  await t.follow({ models: [model("a", { base_url: "http://b/v1" })] });
  answer.resolve("");
  assert.equal(await running, "http://a/v1");
});

Deno.test("a removed model runs for two minutes more, and then no longer", async () => {
  using t = setup();
  await t.follow({ models: [model("a"), model("b")] });
  const pool = t.models.pools.get("a");
  await t.follow({ models: [model("b")] });
  assert.equal(t.catalog.has("a"), false);
  assert.deepEqual(t.models.ids(), ["b", "a"], "edges may still send it");
  t.wait(LEAVING_MS - 1);
  await t.follow({ models: [model("b"), model("c")] });
  assert.equal(t.models.pools.get("a"), pool);
  t.wait(1);
  assert.equal(t.models.pools.has("a"), false);
  assert.deepEqual(t.models.ids(), ["b", "c"]);
  assert.deepEqual(t.closed, ["a"]);
});

Deno.test("a removed model that comes back has its pool again", async () => {
  using t = setup();
  await t.follow({ models: [model("a"), model("b")] });
  const pool = t.models.pools.get("a");
  await t.follow({ models: [model("b")] });
  t.wait(LEAVING_MS - 1);
  await t.follow({ models: [model("a"), model("b")] });
  t.wait(LEAVING_MS);
  assert.equal(t.models.pools.get("a"), pool);
  assert.deepEqual(t.models.ids(), ["a", "b"]);
});

Deno.test("only servers that have changed are asked again", async () => {
  using t = setup();
  t.lists.set("one", ["m1"]);
  t.lists.set("two", ["m2"]);
  await t.follow({ servers: [server("one"), server("two")] });
  assert.deepEqual([...t.catalog.keys()], ["m1", "m2"]);
  assert.deepEqual(t.opened.splice(0), ["one k1", "two k1"]);
  const prefixed = server("two", { discover: { prefix: "x/" } });
  await t.follow({ servers: [server("one"), prefixed] });
  assert.deepEqual(t.opened.splice(0), ["two k1"]);
  assert.deepEqual([...t.catalog.keys()], ["m1", "x/m2"]);
  assert.deepEqual(t.models.lists.current, { one: ["m1"], two: ["x/m2"] });
  assert.equal(t.models.pools.has("m2"), true, "it leaves");
  const keyed = server("two", { api_key_env: "KEY" });
  await t.follow({ servers: [server("one"), keyed] });
  await t.follow({ servers: [server("one"), keyed] }, "k2");
  assert.deepEqual(t.opened, ["two k1", "two k2"]);
  assert.deepEqual(t.closed, ["two", "two", "two"]);
});

Deno.test("a server that changes keeps its models until it answers", async () => {
  using t = setup();
  t.lists.set("one", ["m1"]);
  await t.follow({ servers: [server("one")] });
  t.lists.delete("one");
  const moved = server("one", { base_url: "http://elsewhere/v1" });
  await t.follow({ servers: [moved] });
  assert.deepEqual([...t.catalog.keys()], ["m1"]);
  const [backend] = t.catalog.get("m1")?.backends ?? [];
  assert.equal(backend?.base_url, "http://elsewhere/v1");
});

Deno.test("the models of a removed server leave, and those that it drops are gone", async () => {
  using t = setup();
  t.lists.set("one", ["m1", "m2"]);
  await t.follow({ models: [model("a")], servers: [server("one")] });
  await t.follow({ models: [model("a")] });
  assert.deepEqual([...t.catalog.keys()], ["a"]);
  assert.deepEqual(t.models.ids(), ["a", "m1", "m2"]);
  assert.deepEqual(t.models.lists.current, {});
});
