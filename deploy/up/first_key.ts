import type { Program } from "./child.ts";
import { parseRecord, readRecord, writePrivateFile } from "./files.ts";
import { messageOf } from "./up_error.ts";

/** The key to show, or why there is none. */
export interface FirstKey {
  key?: string;
  /** For the operator. */
  note?: string;
}

export interface FirstKeyDeps {
  dataDir: string;
  /** Of a Redis that is not the launcher's own. */
  redisUrl: string | undefined;
  /** `deno task keys …` */
  keys: (args: readonly string[]) => Program;
  /** Ends the creation. */
  stopping: AbortSignal;
}

const ERROR_LINES = 5;
/** Exit code of the command line when there is no such key. */
const REFUSED = 1;
const HOW_TO_CREATE =
  `make one with: npx -y deno task keys create --description "My key"`;

/**
 * Creates a key on the first run and shows the same one on later runs, as long
 * as it works. A key somebody deleted is not replaced: that was a decision.
 * Never rejects: a gateway without this key is still a gateway.
 */
export async function provideFirstKey(deps: FirstKeyDeps): Promise<FirstKey> {
  try {
    const file = keyFile(deps);
    const { id, key } = await readRecord(file) ?? {};
    if (typeof id === "string" && typeof key === "string") {
      const note = await findFault(id, deps);
      return note === undefined ? { key } : { note };
    }
    const args = ["create", "--description", "First key", "--json"];
    const created = await runKeys(args, deps);
    const record = parseRecord(created.stdout) ?? {};
    if (created.code !== 0) throw new Error(describeFailure(created));
    if (typeof record.key !== "string") {
      throw new Error("creating it printed no key");
    }
    const kept = { id: record.id, key: record.key };
    await writePrivateFile(file, `${JSON.stringify(kept)}\n`);
    return { key: record.key };
  } catch (error) {
    return { note: `No key: ${messageOf(error)}\n  ${HOW_TO_CREATE}` };
  }
}

/** One file per Redis: a key of one means nothing to another. */
function keyFile({ dataDir, redisUrl }: FirstKeyDeps): string {
  if (redisUrl === undefined) return `${dataDir}/first_key.json`;
  const { hostname, port, pathname } = new URL(redisUrl);
  const name = `${hostname}_${port || 6379}${pathname}`;
  return `${dataDir}/first_key.${name.replaceAll(/[^\w.-]/g, "_")}.json`;
}

/** Why a key that was made earlier does not work, if so. */
async function findFault(
  id: string,
  deps: FirstKeyDeps,
): Promise<string | undefined> {
  const shown = await runKeys(["show", id, "--json"], deps);
  if (shown.code !== 0 && shown.code !== REFUSED) {
    throw new Error(describeFailure(shown));
  }
  const { state = "deleted", expired } = parseRecord(shown.stdout) ?? {};
  if (shown.code === REFUSED || state === "deleted") {
    return `The first key was deleted; ${HOW_TO_CREATE}`;
  }
  if (state !== "enabled") {
    return `The first key is ${state}; to use it: npx -y deno task keys enable ${id}`;
  }
  return expired ? `The first key expired; ${HOW_TO_CREATE}` : undefined;
}

interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs the command line of keys. Its output may be a key, so it goes into no log. */
async function runKeys(
  args: readonly string[],
  { keys, stopping }: FirstKeyDeps,
): Promise<Ran> {
  const program = keys(args);
  const { code, stdout, stderr } = await new Deno.Command(program.file, {
    args: [...program.args],
    env: { ...program.env },
    clearEnv: true,
    cwd: program.cwd,
    stdin: "null",
    signal: stopping,
  }).output();
  const decoder = new TextDecoder();
  return {
    code,
    stdout: decoder.decode(stdout),
    stderr: decoder.decode(stderr),
  };
}

function describeFailure({ code, stderr }: Ran): string {
  const lines = stderr.trim().split("\n").slice(-ERROR_LINES);
  return [
    `the command line ended with exit code ${code}`,
    ...lines.map((line) => `  ${line}`),
  ].join("\n");
}
