import { parseRecord, readRecord, writePrivateFile } from "./files.ts";
import type { Program } from "./supervise.ts";
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
      const note = findFault(id, await runKeys(["show", id, "--json"], deps));
      return note === undefined ? { key } : { note };
    }
    const args = ["create", "--description", "First key", "--json"];
    const created = await runKeys(args, deps);
    if (typeof created.key !== "string") throw new Error("none was printed");
    const kept = { id: created.id, key: created.key };
    await writePrivateFile(file, `${JSON.stringify(kept)}\n`);
    return { key: created.key };
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
function findFault(
  id: string,
  { state = "deleted", expired }: Record<string, unknown>,
): string | undefined {
  if (state === "deleted") return `The first key was deleted; ${HOW_TO_CREATE}`;
  if (state !== "enabled") {
    return `The first key is ${state}; to use it: npx -y deno task keys enable ${id}`;
  }
  return expired ? `The first key expired; ${HOW_TO_CREATE}` : undefined;
}

/** Runs the command line of keys. What it prints may be a key, so it goes into no log. */
async function runKeys(
  args: readonly string[],
  { keys, stopping }: FirstKeyDeps,
): Promise<Record<string, unknown>> {
  const program = keys(args);
  const { code, stdout, stderr } = await new Deno.Command(program.file, {
    args: [...program.args],
    env: { ...program.env },
    clearEnv: true,
    cwd: program.cwd,
    stdin: "null",
    signal: stopping,
  }).output();
  const isGone = args[0] === "show" && code === REFUSED;
  if (code === 0 || isGone) {
    return parseRecord(new TextDecoder().decode(stdout)) ?? {};
  }
  const lines = new TextDecoder().decode(stderr).trim().split("\n");
  throw new Error(
    `the command line ended with exit code ${code}\n  ` +
      lines.slice(-ERROR_LINES).join("\n  "),
  );
}
