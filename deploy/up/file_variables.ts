import { resolve } from "node:path";
import type { Variables } from "@gateway/shared/process/env";
import {
  NATS_VARIABLES,
  REDIS_VARIABLES,
} from "@gateway/shared/process/service_variables";

type Environment = Readonly<Record<string, string>>;

/**
 * The variables that name a file a service reads: passwords, certificates. The
 * list of models is not among them, it is an option of the launcher.
 */
const FILE_VARIABLES: ReadonlySet<string> = new Set([
  ...namesIn(NATS_VARIABLES),
  ...namesIn(REDIS_VARIABLES),
  "UPSTREAM_API_KEY_FILE",
  "OIDC_CLIENT_SECRET_FILE",
]);

/** A secret may lie in the file that its name with `_FILE` says. */
function namesIn(variables: Variables): string[] {
  return Object.values(variables)
    .map(({ name, isSecret }) => isSecret ? `${name}_FILE` : name)
    .filter((name) => name.endsWith("_FILE"));
}

/** Makes these paths absolute: the operator stands in `cwd`, services run elsewhere. */
export function withAbsoluteFiles(
  env: Environment,
  cwd: string,
): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).map(([name, value]) => [
      name,
      FILE_VARIABLES.has(name) && value !== "" ? resolve(cwd, value) : value,
    ]),
  );
}

/** The files that a process with this environment has to read. */
export function filesNamedIn(env: Environment): string[] {
  return Object.entries(env)
    .filter(([name, value]) => FILE_VARIABLES.has(name) && value !== "")
    .map(([, value]) => value);
}
