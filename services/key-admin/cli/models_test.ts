/** The commands on models without a process around them. */
import assert from "node:assert/strict";
import { parseCatalog } from "@gateway/shared/models/catalog";
import { startConsole, type TestConsole } from "../console_fixture.ts";
import { tell, tellWaiting } from "../reports_fixture.ts";
import type { Output } from "./command_line.ts";
import {
  type CommandChanges,
  commandDeps,
  runCommand,
} from "./commands_fixture.ts";
import { MODELS } from "./models.ts";

const CATALOG = parseCatalog({
  models: [{
    id: "qwen",
    backends: ["gpu-1", "gpu-2"].map((name) => ({
      type: "openai",
      name,
      base_url: `http://${name}:8000/v1`,
      model: "q",
    })),
  }],
});

/** Runs a command, and says whether it has let go of the workers. */
async function run(
  { deps }: Pick<TestConsole, "deps">,
  args: readonly string[],
  changed: CommandChanges = {},
) {
  let isDisposed = false;
  const askWorkers = () =>
    Promise.resolve({
      ...deps.workers,
      mistakes: deps.listMistakes,
      tellOverrides: deps.tellOverrides,
      [Symbol.asyncDispose]() {
        isDisposed = true;
        return Promise.resolve();
      },
    });
  const all = commandDeps({ deps }, { askWorkers, ...changed });
  const answer = await runCommand({ models: MODELS }, ["models", ...args], all);
  assert.ok(isDisposed);
  return answer;
}

Deno.test("models shows every server, with and without --json", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  tell(site, "w1", [{
    model: "qwen",
    backend: "gpu-1",
    state: "open",
    openMs: 2_500,
    inFlight: 3,
    requests: 20,
    failures: 5,
    firstTokens: [[8, 15]],
    rates: [[14, 15]],
    error: { text: `refused ${"x".repeat(100)}`, ageMs: 0 },
  }]);
  const { text, json } = await run(site, []);
  const [head, first, second, note] = text.split("\n");
  assert.match(head ?? "", /^MODEL +SCOPE +SERVER +STATE +IN FLIGHT +REQUESTS/);
  assert.match(
    first ?? "",
    /^qwen +chat +gpu-1 +Open \(tried again in 3 s\) +3 +20 +5 +1\d\d ms \/ 1\d\d ms +5\d \/ 6\d +refused x+…$/,
  );
  assert.match(
    second ?? "",
    /^qwen +chat +gpu-2 +Not reported \(No worker has it\)/,
  );
  assert.equal(note, "Figures of the last hour, from 2 workers.");
  assert.equal(json.workers, 2);
  assert.match(JSON.stringify(json.models), /"kind":"chat","scope":"chat"/);
  assert.match(
    JSON.stringify(json.models),
    /"name":"gpu-1","address":"http:..gpu-1:8000","preference":0,"weight":1,"state":"open"/,
  );
  assert.match(JSON.stringify(json.models), /"state":"not_reported"/);
});

Deno.test("models says how servers have answered their last probes", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  const probe = { ageMs: 3_000, isFailed: false };
  tell(site, "w1", [
    { model: "qwen", backend: "gpu-1", probe },
    { model: "qwen", backend: "gpu-2", probe: { ...probe, isFailed: true } },
  ]);
  const { text, json } = await run(site, []);
  assert.match(text, /gpu-1 +Closed \(probed [34] s ago\)/);
  assert.match(text, /gpu-2 +Closed \(probe failed [34] s ago\)/);
  const shown = JSON.stringify(json.models);
  assert.match(shown, /"gpu-1".*"probe":\{"failed":false,"at":"2/);
  assert.match(shown, /"gpu-2".*"probe":\{"failed":true,"at":"2/);
});

Deno.test("models says that workers have refused the list, and why", async () => {
  const mistake = "models[0]: unknown member 'wieght'";
  await using site = await startConsole({
    catalog: CATALOG,
    listMistakes: () => [mistake],
  });
  const { text, json } = await run(site, []);
  assert.match(text, /\nThe list of models has a mistake, so workers use an/);
  assert.ok(text.endsWith(`an older one: ${mistake}`), text);
  assert.deepEqual(json.list_mistakes, [mistake]);
});

Deno.test("models also works where the list of models is not known", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  tell(site, "w1", [{ model: "qwen", backend: "gpu-1" }]);
  const { text } = await run(site, ["list"], { catalog: undefined });
  assert.match(text, /qwen +- +gpu-1 +Closed/);
  assert.ok(!text.includes("gpu-2"));
});

Deno.test("models --watch shows it again and again", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  const shown: Output[] = [];
  const enough = new Error("Enough");
  const watching = run(site, ["--watch"], {
    show: (output) => shown.push(output),
    pause: () => shown.length < 3 ? Promise.resolve() : Promise.reject(enough),
  });
  await assert.rejects(watching, enough);
  assert.equal(shown.length, 3);
});

Deno.test("models says what waits for which model", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  tellWaiting(site, "e1", { model: "qwen", requests: 12, oldestMs: 34_000 });
  const { text, json } = await run(site, []);
  assert.match(text, /qwen: 12 requests wait, the oldest for 3[45] s/);
  assert.match(JSON.stringify(json), /"waiting":{"requests":12,"oldest_ms":3/);
});

Deno.test("models without a worker says so", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  const { deps } = site;
  const workers = { ...deps.workers, follower: { workers: 0 } };
  const { text } = await run({ deps: { ...deps, workers } }, []);
  assert.match(text, /No worker has told anything/);
});

Deno.test("models drain, weight and disable make changes that undo takes back", async () => {
  await using site = await startConsole({ catalog: CATALOG });
  const warnings: string[] = [];
  const warn = (text: string) => void warnings.push(text);
  const storedOverrides = async () =>
    (await site.deps.overrides.list()).map(({ what }) => what).sort();
  await run(site, ["drain", "gpu-1", "--reason", "new driver"]);
  assert.deepEqual(warnings, []);
  await run(site, ["drain", "gpu-2"], { warn });
  assert.match(warnings.join(), /last server of qwen.*503/);
  await run(site, ["weight", "gpu-1", "--to", "7"]);
  await run(site, ["disable", "qwen"]);
  assert.deepEqual(await storedOverrides(), [
    "disable",
    "drain",
    "drain",
    "weight",
  ]);
  const { text } = await run(site, []);
  assert.match(
    text,
    /Changed: gpu-1 of qwen drained, by command line at .*: new driver/,
  );
  await run(site, ["undrain", "gpu-1"]);
  await run(site, ["undrain", "gpu-2"]);
  await run(site, ["unweight", "gpu-1"]);
  await run(site, ["enable", "qwen"]);
  assert.deepEqual(await storedOverrides(), []);
  for (
    const { args, why } of [
      { args: ["drain", "gpu-9"], why: /no such server/ },
      { args: ["disable", "other"], why: /no such model/ },
      { args: ["undrain", "gpu-1"], why: /no such change/ },
      { args: ["enable", "qwen"], why: /no such change/ },
      { args: ["weight", "gpu-1"], why: /--to: missing/ },
      { args: ["weight", "gpu-1", "--to", "0"], why: /--to/ },
      { args: ["weight", "gpu-1", "--to", "-1"], why: /--to/ },
      { args: ["weight", "gpu-1", "--to", "10001"], why: /--to/ },
    ]
  ) {
    await assert.rejects(() => run(site, args), why, args.join(" "));
  }
});
