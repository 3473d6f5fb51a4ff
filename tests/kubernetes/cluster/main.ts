/**
 * Runs tests of a cluster in namespaces of their own: nothing that they start reaches
 * another machine, for there is no way out, and all of it ends with them.
 *
 *   deno run --allow-all tests/kubernetes/cluster/main.ts FILE [options of deno test]
 *
 * Where the programs cannot be had, prints why the tests are left out.
 */
import { canRun, print } from "../../support/process.ts";
import { installTools } from "../rendering/rendered_chart.ts";
import { installControlPlane } from "./install.ts";

const NAMESPACES = [
  "--net",
  "--pid",
  "--mount",
  "--fork",
  "--kill-child",
  "--mount-proc",
];

Deno.exit(await main(Deno.args));

async function main([file = "", ...options]: readonly string[]) {
  const reason = await whyNot() ?? await install();
  if (reason === undefined) return await runAlone(file, options);
  const line = `Left out: ${file}: ${reason}`;
  // CI itself must have every program.
  if (Deno.env.has("CI")) throw new Error(line);
  print(line);
  return 0;
}

/** Why a cluster cannot run here, if it cannot. */
async function whyNot(): Promise<string | undefined> {
  if (
    !await canRun("unshare", ...NAMESPACES, "ip", "link", "set", "lo", "up")
  ) {
    return "namespaces cannot be made here: that needs Linux and root";
  }
  for (const program of ["go", "openssl"]) {
    if (!await canRun(program, "version")) return `${program} is missing`;
  }
}

/** Builds what is missing; returns why that failed, if it did. */
async function install(): Promise<string | undefined> {
  try {
    await installTools();
    await installControlPlane();
  } catch (error) {
    return `its programs cannot be built: ${error}`;
  }
}

async function runAlone(file: string, options: readonly string[]) {
  const test = [Deno.execPath(), "test", "--no-check", "-P", file];
  const { code } = await new Deno.Command("unshare", {
    args: [...NAMESPACES, ...test, ...options],
    stdin: "null",
  }).spawn().status;
  return code;
}
