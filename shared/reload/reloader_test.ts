/** When a list is read again, and what a wrong one does. */
import assert from "node:assert/strict";
import { parseCatalog } from "../models/catalog.ts";
import { ConfigError } from "../process/env.ts";
import { silentLog } from "../process/log.ts";
import { Reading } from "./reading.ts";
import { RELOAD_LIMITS, Reloader } from "./reloader.ts";

const PATH = "models.json";
const TICK_MS = 50;
const MODEL = { type: "openai", base_url: "http://a/v1", model: "m" };

/** A list of these models. */
const listOf = (...ids: string[]) =>
  JSON.stringify({ models: ids.map((id) => ({ id, backends: [MODEL] })) });

/** A list in a file that is read again, and what is logged of it. */
function setup() {
  let text: string | null = listOf("a");
  let nowMs = 0;
  const results: string[] = [];
  const applied: string[] = [];
  const logged: { event: string; mistakes?: unknown }[] = [];
  const read = (path: string) => {
    assert.equal(path, PATH);
    return text ?? assert.fail("No such file");
  };
  const reading = new Reading(
    (readFile) => parseCatalog(JSON.parse(readFile(PATH))),
    read,
  );
  const note = (event: string, data?: object) =>
    void logged.push({ event, ...data });
  const reloader = new Reloader({
    reading,
    readText: (path) => Promise.resolve().then(() => read(path)),
    onValue(catalog) {
      applied.push([...catalog.keys()].join());
      return { models: catalog.size };
    },
    onResult: (result) => void results.push(result),
    now: () => nowMs,
    wallNow: () => 1_000_000 + nowMs,
    log: { ...silentLog, info: note, notice: note, error: note },
  });
  return {
    reloader,
    results,
    applied,
    logged,
    write(content: string | null) {
      text = content;
      reloader.notice();
    },
    writeUnnoticed(content: string) {
      text = content;
    },
    async wait(ms: number) {
      for (const endMs = nowMs + ms; nowMs < endMs;) {
        nowMs += TICK_MS;
        await reloader.tick();
      }
    },
  };
}

Deno.test("a list is read once its file has been quiet for a moment", async () => {
  const t = setup();
  t.write(listOf("b"));
  await t.wait(RELOAD_LIMITS.quietMs - TICK_MS);
  t.write(listOf("b", "c"));
  await t.wait(RELOAD_LIMITS.quietMs - TICK_MS);
  assert.deepEqual(t.applied, []);
  await t.wait(TICK_MS);
  assert.deepEqual(t.applied, ["b,c"]);
  assert.deepEqual(t.results, ["changed"]);
});

Deno.test("a change that was not noticed is found by the next poll", async () => {
  const t = setup();
  t.writeUnnoticed(listOf("b"));
  await t.wait(RELOAD_LIMITS.pollMs - TICK_MS);
  assert.deepEqual(t.applied, []);
  await t.wait(TICK_MS);
  assert.deepEqual(t.applied, ["b"]);
});

Deno.test("an event without a change reads nothing anew", async () => {
  const t = setup();
  t.write(listOf("a"));
  await t.wait(60_000);
  assert.deepEqual([t.applied, t.results, t.logged], [[], [], []]);
});

Deno.test("a file that is cut in the middle of a write does no harm", async () => {
  const t = setup();
  const whole = listOf("b", "c");
  t.write(whole.slice(0, 40));
  await t.wait(RELOAD_LIMITS.confirmMs);
  t.write(whole);
  await t.wait(10_000);
  assert.deepEqual(t.applied, ["b,c"]);
  assert.deepEqual(t.results, ["changed"]);
  assert.deepEqual(t.logged.map(({ event }) => event), ["models_read"]);
});

Deno.test("a list with two mistakes changes nothing, and is refused once with both", async () => {
  const t = setup();
  const [model] = JSON.parse(listOf("b")).models;
  const wrong = { ...model, visoin: true, kind: "chta" };
  t.write(JSON.stringify({ models: [wrong] }));
  await t.wait(60_000);
  assert.deepEqual(t.applied, []);
  assert.deepEqual(t.results, ["refused"]);
  const mistakes = [
    "models[0].kind: expected one of 'chat', 'image', 'speech', 'transcription', 'video', 'embedding', 'rerank', did you mean 'chat'?",
    "models[0]: unknown member 'visoin', did you mean 'vision'?",
  ];
  assert.equal(t.reloader.state.mistakes.length, 2);
  for (const [index, each] of t.reloader.state.mistakes.entries()) {
    assert.match(each, /^models\[0\]/);
    assert.equal(each.includes("did you mean"), true, mistakes[index]);
  }
  assert.deepEqual(t.logged[0]?.mistakes, t.reloader.state.mistakes);
  assert.equal(t.reloader.state.readAtMs, 1_000_000, "the old list stays");
  t.write(listOf("a"));
  await t.wait(1_000);
  assert.deepEqual(t.reloader.state.mistakes, []);
  assert.deepEqual(t.applied, ["a"]);
});

Deno.test("a removed file keeps its list, and is a mistake until it is back", async () => {
  const t = setup();
  t.write(null);
  await t.wait(2_000);
  assert.deepEqual(t.applied, []);
  assert.match(t.reloader.state.mistakes.join(), /No such file/);
  t.write(listOf("b"));
  await t.wait(1_000);
  assert.deepEqual(t.applied, ["b"]);
  assert.deepEqual(t.reloader.state.mistakes, []);
});

Deno.test("a file that is swapped ten times a second is read about once a second", async () => {
  const t = setup();
  for (let swap = 0; swap < 100; swap++) {
    t.write(listOf(`m${swap}`));
    await t.wait(100);
  }
  await t.wait(1_000);
  assert.ok(t.applied.length >= 8 && t.applied.length <= 12, `${t.applied}`);
  assert.equal(t.applied.at(-1), "m99");
});

Deno.test("a file that changes all the time and is always wrong is refused", async () => {
  const t = setup();
  for (let swap = 0; swap < 50; swap++) {
    t.write(`{ "models": ${swap}`);
    await t.wait(100);
  }
  assert.ok(t.results.length >= 2, `${t.results}`);
  assert.deepEqual(new Set(t.results), new Set(["refused"]));
});

Deno.test("who asks gets an answer at once: changed, unchanged or the mistakes again", async () => {
  const t = setup();
  t.reloader.want();
  await t.wait(TICK_MS);
  t.writeUnnoticed("{");
  t.reloader.want();
  await t.wait(TICK_MS);
  t.reloader.want();
  await t.wait(TICK_MS);
  t.writeUnnoticed(listOf("b"));
  t.reloader.want();
  await t.wait(TICK_MS);
  const all = ["unchanged", "refused", "refused", "changed"];
  assert.deepEqual(t.results, all);
  assert.deepEqual(t.logged.map(({ event }) => event), [
    "models_unchanged",
    "models_refused",
    "models_refused",
    "models_read",
  ]);
});

Deno.test("10,000 models are one mistake, which is found without checking them all", async () => {
  const t = setup();
  const ids = Array.from({ length: 10_000 }, (_, index) => `m${index}`);
  t.write(listOf(...ids));
  await t.wait(3_000);
  assert.deepEqual(t.reloader.state.mistakes, [
    "models: expected at most 1000 elements, got 10000",
  ]);
});

Deno.test("a reading that fails keeps its value, and knows what it has read", () => {
  const files = new Map([["a", "1"], ["b", "2"]]);
  const reading = new Reading((readFile) => {
    const text = readFile("a") + readFile("b");
    if (text.includes("x")) throw new ConfigError("the files", ["x"]);
    return text;
  }, (path) => files.get(path) ?? assert.fail("No such file"));
  files.set("a", "x");
  assert.throws(() => reading.again(), ConfigError);
  assert.equal(reading.value, "12");
  assert.deepEqual([...reading.texts], [["a", "x"], ["b", "2"]]);
  files.delete("b");
  assert.throws(() => reading.again());
  assert.deepEqual([...reading.texts], [["a", "x"], ["b", null]]);
});
