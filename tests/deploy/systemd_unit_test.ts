// Promise: systemd accepts the unit, and `up` accepts how the unit starts it.
import assert from "node:assert/strict";
import { parseOptions } from "../../deploy/up/options.ts";
import { makeTempDir } from "../support/process.ts";

const UNIT = new URL(
  "../../deploy/systemd/gateway.service",
  import.meta.url,
);
const text = await Deno.readTextFile(UNIT);
const SECTIONS = ["Unit", "Service", "Install"];

/** The settings of the unit, by section and name; a name may have several values. */
function settingsOf(unit: string): Map<string, string[]> {
  const settings = new Map<string, string[]>();
  let section = "";
  for (const line of unit.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const [, header] = /^\[(\w+)\]$/.exec(line) ?? [];
    const [, name, value = ""] = /^([A-Z]\w+)=(.*)$/.exec(line) ?? [];
    assert.ok(header !== undefined || name !== undefined, line);
    if (header !== undefined) section = header;
    else {
      const key = `${section}.${name}`;
      settings.set(key, [...settings.get(key) ?? [], value]);
    }
  }
  return settings;
}

const settings = settingsOf(text);
const valueOf = (name: string): string => {
  const [value] = settings.get(name) ?? [];
  return value ?? assert.fail(`no ${name}`);
};

Deno.test("the unit of systemd has well-formed settings in known sections", () => {
  const sections = new Set(
    [...settings.keys()].map((key) => key.split(".")[0]),
  );
  assert.deepEqual([...sections], SECTIONS);
  const repeated = [...settings].filter(([, values]) => values.length > 1)
    .map(([key]) => key);
  assert.deepEqual(repeated, ["Service.Environment"]);
});

Deno.test("systemd accepts the unit, where there is one", async () => {
  await using scratch = await makeTempDir();
  const path = `${scratch.path}/gateway.service`;
  const here = text.replaceAll("/usr/local/bin/deno", Deno.execPath());
  await Deno.writeTextFile(path, here);
  const command = new Deno.Command("systemd-analyze", {
    args: ["verify", "--man=no", path],
    stdout: "piped",
    stderr: "piped",
  });
  let result: Deno.CommandOutput;
  try {
    result = await command.output();
  } catch (error) {
    // Most images of tests have none: the test above reads the form.
    assert.ok(error instanceof Deno.errors.NotFound, String(error));
    return;
  }
  const lines = new TextDecoder().decode(result.stderr).split("\n")
    .filter((line) => line.includes("gateway.service"));
  assert.deepEqual(lines, []);
});

Deno.test("up accepts what the unit gives it, and has the directories that the unit makes", () => {
  const [deno, run, access, main, ...args] = valueOf("Service.ExecStart")
    .split(" ");
  assert.deepEqual(
    [deno, run, access, main],
    ["/usr/local/bin/deno", "run", "--allow-all", "deploy/up/main.ts"],
  );
  const options = parseOptions(args, valueOf("Service.WorkingDirectory"));
  assert.ok(typeof options !== "string");
  assert.equal(
    options.dataDir,
    `/var/lib/${valueOf("Service.StateDirectory")}`,
  );
  assert.equal(options.runDir, `/run/${valueOf("Service.RuntimeDirectory")}`);
});
