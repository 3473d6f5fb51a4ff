/**
 * Reduces `deno.json` and `deno.lock` of an image to the packages that its programs
 * import.
 */

/** `npm:@redis/client@6.3.1` of `npm:/@redis/client@6.3.1/lib/x.js`. */
function packageOf(specifier: string): string {
  const [, name = ""] = /^npm:\/?((?:@[^/]+\/)?[^/]+)/.exec(specifier) ?? [];
  return `npm:${name}`;
}

async function importedBy(program: string): Promise<string[]> {
  const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["info", "--no-npm", "--json", program],
  }).output();
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  const graph: { modules: { specifier: string }[] } = JSON.parse(
    new TextDecoder().decode(stdout),
  );
  return graph.modules.map(({ specifier }) => specifier)
    .filter((specifier) => specifier.startsWith("npm:")).map(packageOf);
}

function only(
  record: Record<string, string>,
  isKept: (entry: [name: string, target: string]) => boolean,
): Record<string, string> {
  return Object.fromEntries(Object.entries(record).filter(isKept));
}

const packages = new Set((await Promise.all(Deno.args.map(importedBy))).flat());
const config = JSON.parse(await Deno.readTextFile("deno.json"));
config.imports = only(config.imports, ([, to]) => packages.has(packageOf(to)));
await Deno.writeTextFile("deno.json", JSON.stringify(config, null, 2));

const lock = JSON.parse(await Deno.readTextFile("deno.lock"));
lock.specifiers = only(
  lock.specifiers,
  ([specifier]) => packages.has(specifier),
);
const { workspace } = lock;
workspace.dependencies = workspace.dependencies
  .filter((name: string) => packages.has(name));
await Deno.writeTextFile("deno.lock", JSON.stringify(lock, null, 2));
