/** Real files that change as editors, people and Kubernetes change them. */
import assert from "node:assert/strict";
import { silentLog } from "../process/log.ts";
import { MetricRegistry } from "../process/metrics.ts";
import { until } from "../../tests/support/wait_for.ts";
import { makeTempDir } from "../../tests/support/process.ts";
import { readSettingsFile, SETTINGS_FILE_BYTES_MAX } from "./files.ts";
import { Reading } from "./reading.ts";
import { RELOAD_LIMITS } from "./reloader.ts";
import { startReloading } from "./watch.ts";

/** Earlier than the next poll: the change was noticed. */
const NOTICED_MS = RELOAD_LIMITS.pollMs - 500;

async function rig(files: { [name: string]: string }, entry = "a") {
  const directory = await makeTempDir();
  const { path } = directory;
  for (const [name, text] of Object.entries(files)) {
    await Deno.mkdir(`${path}/${name}`.replace(/\/[^/]*$/, ""), {
      recursive: true,
    });
    await Deno.writeTextFile(`${path}/${name}`, text);
  }
  const registry = new MetricRegistry();
  const hangUp: (() => void)[] = [];
  const values: string[] = [];
  const start = () =>
    startReloading({
      reading: new Reading(
        (readFile) => readFile(`${path}/${entry}`),
        readSettingsFile,
      ),
      onValue(value) {
        values.push(value);
        return {};
      },
    }, {
      log: silentLog,
      registry,
      onHangUp: (listener) => void hangUp.push(listener),
    });
  return { path, start, values, registry, hangUp, directory };
}

const CHANGES: {
  [how: string]: (path: string) => Promise<void>;
} = {
  "is written": (path) => Deno.writeTextFile(`${path}/a`, "2"),
  async "is replaced, as editors do"(path) {
    await Deno.writeTextFile(`${path}/a~`, "2");
    await Deno.rename(`${path}/a~`, `${path}/a`);
  },
  async "is removed and written anew"(path) {
    await Deno.remove(`${path}/a`);
    await Deno.writeTextFile(`${path}/a`, "2");
  },
};

for (const [how, change] of Object.entries(CHANGES)) {
  Deno.test(`a file that ${how} is read again, and again`, async () => {
    const t = await rig({ a: "1" });
    await using _ = t.directory;
    const reloading = t.start();
    const startedAtMs = performance.now();
    await change(t.path);
    await until(() => t.values.length > 0);
    assert.ok(performance.now() - startedAtMs < NOTICED_MS, "by an event");
    const writtenAtMs = performance.now();
    await Deno.writeTextFile(`${t.path}/a`, "3");
    await until(() => t.values.at(-1) === "3");
    assert.ok(performance.now() - writtenAtMs < NOTICED_MS, "by an event");
    reloading.stop();
    assert.equal(t.values[0], "2");
    assert.match(
      t.registry.text(),
      /\ngateway_models_reload_total\{result="changed"\} 2\n/,
    );
  });
}

const lone = await makeTempDir();
globalThis.addEventListener(
  "unload",
  () => Deno.removeSync(lone.path, { recursive: true }),
);

Deno.test({
  name:
    "a file whose directory must not be read is noticed each time it is replaced",
  // As `up` starts services.
  permissions: {
    read: [`${lone.path}/a`, `${lone.path}/a~`],
    write: [lone.path],
  },
  async fn() {
    const file = `${lone.path}/a`;
    await Deno.writeTextFile(file, "0");
    const values: string[] = [];
    const reloading = startReloading({
      reading: new Reading((read) => read(file), Deno.readTextFileSync),
      onValue(value) {
        values.push(value);
        return {};
      },
    }, {
      log: silentLog,
      registry: new MetricRegistry(),
      onHangUp() {},
    });
    for (const text of ["1", "2", "3"]) {
      const replacedAtMs = performance.now();
      await Deno.writeTextFile(`${file}~`, text);
      await Deno.rename(`${file}~`, file);
      await until(() => values.at(-1) === text);
      assert.ok(performance.now() - replacedAtMs < NOTICED_MS, text);
    }
    reloading.stop();
  },
});

Deno.test("a volume of Kubernetes, whose files are behind a link that is swapped", async () => {
  const t = await rig({ "1/a": "1", "2/a": "2" }, "a");
  await using _ = t.directory;
  await Deno.symlink("1", `${t.path}/..data`);
  await Deno.symlink("..data/a", `${t.path}/a`);
  const reloading = t.start();
  const startedAtMs = performance.now();
  await Deno.symlink("2", `${t.path}/..data_tmp`);
  await Deno.rename(`${t.path}/..data_tmp`, `${t.path}/..data`);
  await until(() => t.values.length > 0);
  assert.ok(performance.now() - startedAtMs < NOTICED_MS, "by an event");
  reloading.stop();
  assert.deepEqual(t.values, ["2"]);
});

Deno.test("SIGHUP reads at once, and says so although nothing has changed", async () => {
  const t = await rig({ a: "1" });
  await using _ = t.directory;
  const reloading = t.start();
  for (const listener of t.hangUp) listener();
  await until(() => /\{result="unchanged"\} 1\n/.test(t.registry.text()));
  reloading.stop();
  assert.deepEqual(t.values, []);
});

Deno.test("a file that is too large is refused without being read, until it is small again", async () => {
  const t = await rig({ a: "1" });
  await using _ = t.directory;
  const reloading = t.start();
  await Deno.truncate(`${t.path}/a`, SETTINGS_FILE_BYTES_MAX + 1);
  await until(() => reloading.state.mistakes.length > 0);
  assert.deepEqual(reloading.state.mistakes, [
    "it has 33 MiB, and a file of settings at most 32 MiB",
  ]);
  await Deno.writeTextFile(`${t.path}/a`, "2");
  await until(() => t.values.length > 0);
  assert.deepEqual(t.values, ["2"]);
  assert.deepEqual(reloading.state.mistakes, []);
  reloading.stop();
});
