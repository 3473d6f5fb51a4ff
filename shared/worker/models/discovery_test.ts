/** What a worker makes of the lists of servers, whatever they answer. */
import assert from "node:assert/strict";
import { DISCOVERY_LIMITS } from "../../bus/server_lists.ts";
import { parseCatalog } from "../../models/catalog.ts";
import { silentLog } from "../../process/log.ts";
import { Discovery, withStandIn } from "./discovery.ts";
import { namesIn } from "./model_lists.ts";

const catalog = parseCatalog({
  models: [{
    id: "ours",
    backends: [{
      type: "openai",
      name: "a",
      base_url: "http://a/v1",
      model: "ours",
    }],
  }],
  servers: ["a", "b"].map((name) => (
    { type: "openai", name, base_url: `http://${name}/v1` }
  )),
});
const [A, B] = catalog.servers;

/** A discovery whose servers answer what the test says, or fail. */
function setup(family: "chat" | "media" = "chat") {
  const answers = new Map<string, readonly string[]>();
  const warnings: string[] = [];
  let nowMs = 0;
  let changes = 0;
  let isFollowing = false;
  const closed: string[] = [];
  const discovery = new Discovery({
    family,
    identify: (server) => JSON.stringify(server),
    open: ({ name }) => ({
      ask() {
        const names = answers.get(name);
        return names === undefined
          ? Promise.reject(new Error("Out of reach"))
          : Promise.resolve(names);
      },
      close: () => void closed.push(name),
    }),
    now: () => nowMs,
    random: () => 0.5,
    sleep: (_, signal) => {
      const { promise, reject } = Promise.withResolvers<void>();
      signal.addEventListener("abort", () => reject(signal.reason));
      return promise;
    },
    log: { ...silentLog, warn: (event) => void warnings.push(event) },
    onChange() {
      changes += 1;
    },
  });
  return {
    discovery,
    answers,
    warnings,
    changes: () => changes,
    wait(ms: number) {
      nowMs += ms;
    },
    closed,
    /** Asks the servers, the first time because they are new. */
    async ask() {
      await (isFollowing
        ? discovery.askAll()
        : discovery.follow(catalog.servers));
      isFollowing = true;
    },
  };
}

Deno.test("a discovery asks all servers, and lists what it may offer of their kinds", async () => {
  const chat = setup();
  chat.answers.set("a", ["llama3", "a b", "bge-m3", "whisper-1"]);
  chat.answers.set("b", ["x/y:z"]);
  await chat.ask();
  chat.discovery.stop();
  assert.deepEqual(chat.discovery.current, {
    a: ["llama3", "bge-m3"],
    b: ["x/y:z"],
  });
  const media = setup("media");
  media.answers.set("a", ["llama3", "whisper-1"]);
  await media.ask();
  assert.deepEqual(media.discovery.current, { a: ["whisper-1"], b: [] });
});

Deno.test("only a change of a list is a new revision", async () => {
  const { discovery, answers, ask, changes } = setup();
  answers.set("a", ["one"]);
  answers.set("b", []);
  await ask();
  const { revision } = discovery;
  await ask();
  assert.equal(discovery.revision, revision);
  answers.set("a", ["one", "two"]);
  await ask();
  assert.equal(discovery.revision, revision + 1);
  assert.equal(changes(), revision + 1);
});

Deno.test("a server that fails keeps its models for ten minutes, and warns once", async () => {
  const { discovery, answers, ask, wait, warnings } = setup();
  answers.set("a", ["one"]);
  answers.set("b", ["two"]);
  await ask();
  answers.delete("a");
  await ask();
  wait(DISCOVERY_LIMITS.keepMs - 1);
  await ask();
  assert.deepEqual(discovery.current, { a: ["one"], b: ["two"] });
  wait(1);
  await ask();
  assert.deepEqual(discovery.current, { a: [], b: ["two"] });
  assert.deepEqual(warnings, ["models_not_listed"]);
  answers.set("a", ["one"]);
  await ask();
  assert.deepEqual(discovery.current, { a: ["one"], b: ["two"] });
});

Deno.test("a server that never answers has told that it has no models", async () => {
  const { discovery, ask } = setup();
  await ask();
  assert.equal(discovery.revision, 2);
  assert.deepEqual(discovery.current, { a: [], b: [] });
});

Deno.test("10,000 models are cut to what a message may have", async () => {
  const { discovery, answers, ask, warnings } = setup();
  const names = Array.from({ length: 10_000 }, (_, index) => `m${index}`);
  answers.set("a", names);
  answers.set("b", names.map((name) => name.padEnd(200, "x")));
  await ask();
  const { a = [], b = [] } = discovery.current;
  assert.deepEqual(a, names.slice(0, DISCOVERY_LIMITS.modelsMax));
  assert.ok(b.length > 600 && b.length < DISCOVERY_LIMITS.modelsMax);
  const { length } = JSON.stringify(discovery.current);
  assert.ok(length <= DISCOVERY_LIMITS.namesBytesMax, `${length}`);
  assert.deepEqual(warnings, ["models_left_out", "models_left_out"]);
  await ask(); // The same lists are no news.
  assert.equal(warnings.length, 2);
});

Deno.test("a model of the file stands for the first chat model, unless it is listed", async () => {
  assert.ok(A !== undefined && B !== undefined);
  const servers = [{ ...A, standIn: "ours" }, B];
  const { discovery, answers, ask } = setup();
  const model = catalog.get("ours");
  assert.ok(model !== undefined);
  const nameAt = () =>
    withStandIn(model, discovery, { servers }).backends[0]?.model;
  answers.set("a", []);
  await ask();
  assert.equal(nameAt(), "ours");
  answers.set("a", ["bge-m3", "llama3", "qwen3"]);
  await ask();
  assert.equal(nameAt(), "llama3");
  answers.set("a", ["llama3", "ours"]);
  await ask();
  assert.equal(nameAt(), "ours");
});

const LISTS: [text: string, names: readonly string[] | null][] = [
  ['{"object":"list","data":[{"id":"a"},{"id":"b"}]}', ["a", "b"]],
  ['{"models":[{"name":"a","model":"x"},{"model":"b"}]}', ["a", "b"]],
  ['[{"id":"a"},"b"]', ["a", "b"]],
  ['{"data":[{"id":"a"},{"id":"a"},{"id":1},null,{}]}', ["a"]],
  ['{"data":[]}', []],
  ['{"data":{"a":1}}', null],
  ['{"error":"no"}', null],
  ["<html>", null],
  ["", null],
  ["null", null],
  ["[".repeat(200_000), null],
];

for (const [text, names] of LISTS) {
  Deno.test(`namesIn() of ${text.slice(0, 40) || "nothing"} is ${names}`, () => {
    assert.deepEqual(namesIn(text), names);
  });
}
