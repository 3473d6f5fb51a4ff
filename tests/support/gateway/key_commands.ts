/**
 * The command line of keys, run in this process; `services/key-admin/cli_test.ts` has
 * the process.
 */
import { run } from "../../../services/key-admin/cli.ts";
import type { ServiceEnv } from "./services.ts";

/** A key as `keys create --json` prints it. */
export interface CreatedKey {
  readonly id: string;
  /** The secret value, which callers send. */
  readonly key: string;
}

/** Runs `keys … --json` with these variables and returns what it prints. */
export function runKeys(env: ServiceEnv, ...args: string[]): Promise<string> {
  return run(["keys", ...args, "--json"], env);
}

/** Creates a key with these options of the command line. */
export async function makeKey(
  env: ServiceEnv,
  ...options: string[]
): Promise<CreatedKey> {
  const args = ["create", "--description=test", ...options];
  return JSON.parse(await runKeys(env, ...args));
}
