/** `deno task release`: makes the files of a release, and publishes it. */
import { createHash } from "node:crypto";
import { join, resolve } from "node:path";
import process from "node:process";
import { errorMessage } from "@gateway/shared/process/env";
import { VERSION } from "@gateway/shared/version";
import { Command as CommandLine } from "commander";
import { billOfMaterials } from "../docs/sbom.ts";
import { faultsOf, notesOf } from "./faults.ts";
import { type Artefact, checksumsOf, provenanceOf } from "./provenance.ts";
import { type Command, commandsOf, textOf } from "./publish.ts";

const CHART = "deploy/helm/chat-gateway";
const EXAMPLES = "deploy/helm/examples";
const REGISTRY_EXAMPLE = "registry.example.org/gateway";
const REVISION_CHARS = 7;

interface Options {
  readonly out: string;
  readonly builder: string;
  readonly publish?: string;
}

/** Runs a program here, and returns what it prints. Throws with its error. */
async function outputOf([program, ...args]: Command): Promise<string> {
  const command = new Deno.Command(program, { args });
  const { success, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  if (success) return decoder.decode(stdout).trim();
  const why = decoder.decode(stderr).trim();
  throw new Error(`${textOf([program, ...args])}\n${why}`);
}

/** Runs a program that may ask its operator, and whose output is shown. */
async function run([program, ...args]: Command): Promise<void> {
  const child = new Deno.Command(program, { args, stdin: "inherit" }).spawn();
  const { code } = await child.status;
  if (code === 0) return;
  throw new Error(
    `${
      textOf([program, ...args])
    }\nended with ${code}: what came before it is done`,
  );
}

/** Throws with every reason why this commit cannot be released. */
async function requireReleasable(changelog: string): Promise<void> {
  const examples: Record<string, string> = {};
  for await (const { name } of Deno.readDir(EXAMPLES)) {
    examples[name] = await Deno.readTextFile(join(EXAMPLES, name));
  }
  const faults = faultsOf({
    version: VERSION,
    chart: await Deno.readTextFile(join(CHART, "Chart.yaml")),
    examples,
    changelog,
    status: await outputOf(["git", "status", "--porcelain"]),
    tags: (await outputOf(["git", "tag"])).split("\n"),
  });
  if (faults.length === 0) return;
  throw new Error(["Not a release:", ...faults].join("\n  - "));
}

/** Writes the files of the release, and returns that of the chart. */
async function writeFiles(
  { out, builder }: Options,
  { commit, changelog }: { commit: string; changelog: string },
): Promise<string> {
  await Deno.mkdir(out, { recursive: true });
  const source = `gateway-${VERSION}-source.tar.gz`;
  await outputOf([
    "git",
    "archive",
    `--prefix=gateway-${VERSION}/`,
    `--output=${join(out, source)}`,
    commit,
  ]);
  // Its links are files of the package.
  await outputOf(["helm", "package", CHART, "--destination", out]);
  const chart = `chat-gateway-${VERSION}.tgz`;
  const bill = billOfMaterials(
    JSON.parse(await Deno.readTextFile("deno.lock")),
  );
  const texts: Record<string, string> = {
    "sbom.cdx.json": `${JSON.stringify(bill, null, 2)}\n`,
    "notes.md": `${notesOf(changelog, VERSION)}\n`,
  };
  for (const [name, text] of Object.entries(texts)) {
    await Deno.writeTextFile(join(out, name), text);
  }
  const artefacts: Artefact[] = [];
  for (const name of [source, chart, ...Object.keys(texts)]) {
    const bytes = await Deno.readFile(join(out, name));
    const sha256 = createHash("sha256").update(bytes).digest("hex");
    artefacts.push({ name, sha256 });
  }
  const repository = await repositoryOf();
  const origin = { version: VERSION, repository, commit, builder };
  const statement = provenanceOf(artefacts, origin);
  await Deno.writeTextFile(
    join(out, "provenance.intoto.json"),
    `${JSON.stringify(statement, null, 2)}\n`,
  );
  await Deno.writeTextFile(join(out, "SHA256SUMS"), checksumsOf(artefacts));
  return join(out, chart);
}

/** Where `origin` is; without one, the release is of this folder. */
async function repositoryOf(): Promise<string> {
  const remotes = await outputOf(["git", "remote"]);
  return remotes.split("\n").includes("origin")
    ? await outputOf(["git", "remote", "get-url", "origin"])
    : `file://${Deno.cwd()}`;
}

async function release(options: Options): Promise<void> {
  const changelog = await Deno.readTextFile("CHANGELOG.md");
  await requireReleasable(changelog);
  const commit = await outputOf(["git", "rev-parse", "HEAD"]);
  const chartFile = await writeFiles(options, { commit, changelog });
  const commands = commandsOf({
    version: VERSION,
    revision: commit.slice(0, REVISION_CHARS),
    registry: options.publish ?? REGISTRY_EXAMPLE,
    chartFile,
  });
  say(`The files of version ${VERSION} are in ${options.out}.`);
  if (options.publish === undefined) {
    say("Nothing is published. --publish REGISTRY would run:\n");
    for (const command of commands) say(`  ${textOf(command)}`);
    return;
  }
  for (const command of commands) {
    say(`\n> ${textOf(command)}`);
    await run(command);
  }
  say(`\nVersion ${VERSION} is published. Sign it as docs/release.md says.`);
}

const say = (line: string): void =>
  void Deno.stdout.writeSync(new TextEncoder().encode(`${line}\n`));

const commandLine = new CommandLine("deno task release")
  .description("Makes the files of a release of this commit, and publishes it.")
  .option("--out <dir>", "where the files go", "dist")
  .option("--builder <uri>", "who makes it, for the provenance", "local")
  .option(
    "--publish <registry>",
    `tag the commit, and push images and chart to it, such as ${REGISTRY_EXAMPLE}`,
  )
  .action(async (options: Options) => {
    // `deno task` runs in the root and sets INIT_CWD to the operator's directory.
    const cwd = Deno.env.get("INIT_CWD") || Deno.cwd();
    await release({ ...options, out: resolve(cwd, options.out) });
  });

try {
  await commandLine.parseAsync(process.argv);
} catch (error) {
  Deno.stderr.writeSync(new TextEncoder().encode(`${errorMessage(error)}\n`));
  Deno.exitCode = 1;
}
