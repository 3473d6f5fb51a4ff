/** Commands over the stores of a test console, without a process around them. */
import assert from "node:assert/strict";
import type { AdminDeps } from "../api/route.ts";
import type { TestConsole } from "../console_fixture.ts";
import {
  type Area,
  type CommandDeps,
  outputText,
  parseCommand,
} from "./command_line.ts";
import { LocalApi } from "./local_api.ts";

/** Differences from what commands work with. */
export interface CommandChanges extends
  Partial<
    & Pick<CommandDeps, "api" | "local" | "warn" | "show" | "pause">
    & Pick<AdminDeps, "askWorkers" | "askRunning" | "catalog" | "modelNames">
  > {
  readFile?: (path: string) => Promise<string>;
}

/** The ids of models that commands know here. */
const MODELS = ["small-1", "large-1"];

/** What commands work with in this process; what a test does not expect fails. */
export function commandDeps(
  { deps }: Pick<TestConsole, "deps">,
  changes: CommandChanges = {},
): CommandDeps {
  const {
    modelNames = { ids: () => MODELS, find: () => undefined },
    readFile = (path) => assert.fail(`reads ${path}`),
    askWorkers = () => assert.fail("nobody asks the workers"),
    askRunning = () => assert.fail("nobody asks the edges"),
    catalog = deps.catalog,
    ...others
  } = changes;
  return {
    api: new LocalApi({
      ...deps,
      askWorkers,
      askRunning,
      modelNames,
      catalog: "catalog" in changes ? changes.catalog : catalog,
    }),
    local: { ...deps, readFile },
    modelNames,
    now: deps.now,
    warn: (text) => assert.fail(text),
    show: () => assert.fail("nothing is shown before the answer"),
    pause: () => assert.fail("nothing waits"),
    ...others,
  };
}

/** Runs a command of these areas. Returns its answer with and without `--json`. */
export async function runCommand(
  areas: Readonly<Record<string, Area>>,
  args: readonly string[],
  deps: CommandDeps,
) {
  const command = parseCommand(areas, args);
  assert.ok(typeof command !== "string", "a command, not a help page");
  const answer = await command.run(deps);
  const json: Record<string, unknown> = JSON.parse(JSON.stringify(answer.json));
  return { json, text: outputText(answer) };
}
