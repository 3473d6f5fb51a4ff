import { errorMessage } from "@gateway/shared/process/env";
import * as z from "zod";
import { writePrivateFile } from "./files.ts";
import type { Program } from "./supervise.ts";

/** The key to show, or why there is none. */
export interface FirstKey {
  key?: string;
  /** For the operator. */
  note?: string;
}

export interface FirstKeyDeps {
  dataDir: string;
  /** Of a Redis that is not the launcher's own. */
  givenRedisUrl: string | undefined;
  /** `deno task keys …` */
  keys: (args: readonly string[]) => Program;
  /** Ends the creation. */
  stopping: AbortSignal;
}

const ERROR_LINES = 5;
/** Exit code of the command line when there is no such key. */
const NOT_FOUND = 1;
const HOW_TO_CREATE =
  `create one with: npx -y deno task keys create --description "My key"`;
const CREATED = z.object({ id: z.string(), key: z.string() });
const SHOWN = z.object({ state: z.string(), expired: z.boolean() });

/**
 * Creates a key on the first run and shows the same one on later runs, as long
 * as it works. A key somebody deleted is not replaced: that was a decision.
 * Never rejects: a gateway without this key is still a gateway.
 */
export async function provideFirstKey(deps: FirstKeyDeps): Promise<FirstKey> {
  try {
    const file = keyFile(deps);
    const kept = await Deno.readTextFile(file).catch(() => undefined);
    if (kept !== undefined) {
      const { id, key } = CREATED.parse(JSON.parse(kept));
      const shown = await runKeys(["show", id, "--json"], deps);
      const { state, expired } = shown === ""
        ? { state: "deleted", expired: false }
        : SHOWN.parse(JSON.parse(shown));
      if (state === "enabled" && !expired) return { key };
      const what = expired ? "has expired" : `is ${state}`;
      return { note: `The first key ${what}; ${HOW_TO_CREATE}` };
    }
    const args = ["create", "--description", "First key", "--json"];
    const created = CREATED.parse(JSON.parse(await runKeys(args, deps)));
    await writePrivateFile(file, `${JSON.stringify(created)}\n`);
    return { key: created.key };
  } catch (error) {
    return { note: `No key: ${errorMessage(error)}\n  ${HOW_TO_CREATE}` };
  }
}

/** One file per Redis: a key of one means nothing to another. */
function keyFile({ dataDir, givenRedisUrl }: FirstKeyDeps): string {
  if (givenRedisUrl === undefined) return `${dataDir}/first_key.json`;
  const { hostname, port, pathname } = new URL(givenRedisUrl);
  const name = `${hostname}_${port || 6379}${pathname}`;
  return `${dataDir}/first_key.${name.replaceAll(/[^\w.-]/g, "_")}.json`;
}

/**
 * What the command line of keys prints; nothing when there is no such key. That
 * may be a key, so it goes into no log.
 */
async function runKeys(
  args: readonly string[],
  { keys, stopping }: FirstKeyDeps,
): Promise<string> {
  const program = keys(args);
  const { code, stdout, stderr } = await new Deno.Command(program.file, {
    args: [...program.args],
    env: { ...program.env },
    clearEnv: true,
    cwd: program.cwd,
    stdin: "null",
    signal: stopping,
  }).output();
  if (code === 0) return new TextDecoder().decode(stdout);
  if (args[0] === "show" && code === NOT_FOUND) return "";
  const lines = new TextDecoder().decode(stderr).trim().split("\n");
  throw new Error(
    `the command line ended with exit code ${code}\n  ` +
      lines.slice(-ERROR_LINES).join("\n  "),
  );
}
