/**
 * Leaves in `deno.json` and `deno.lock` of an image the packages that its programs
 * import: `slim.ts services/edge-auth/main.ts`. Without it every image would carry
 * those of the tests, a browser's driver among them, and of the other services.
 */

interface Config {
  imports: Record<string, string>;
}

interface Lock {
  specifiers: Record<string, string>;
  workspace: { dependencies: string[] };
}

interface ModuleGraph {
  modules: { specifier: string }[];
}

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
  const graph: ModuleGraph = JSON.parse(new TextDecoder().decode(stdout));
  return graph.modules.map(({ specifier }) => specifier)
    .filter((specifier) => specifier.startsWith("npm:")).map(packageOf);
}

async function rewrite<T>(file: string, change: (content: T) => T) {
  const content: T = JSON.parse(await Deno.readTextFile(file));
  await Deno.writeTextFile(file, JSON.stringify(change(content), null, 2));
}

const kept = new Set((await Promise.all(Deno.args.map(importedBy))).flat());

function only<V>(
  record: Record<string, V>,
  isKept: (key: string, value: V) => boolean,
): Record<string, V> {
  return Object.fromEntries(
    Object.entries(record).filter(([key, value]) => isKept(key, value)),
  );
}

await rewrite<Config>("deno.json", (config) => ({
  ...config,
  imports: only(config.imports, (_, target) => kept.has(packageOf(target))),
}));
await rewrite<Lock>("deno.lock", (lock) => ({
  ...lock,
  specifiers: only(lock.specifiers, (specifier) => kept.has(specifier)),
  workspace: {
    ...lock.workspace,
    dependencies: lock.workspace.dependencies.filter((name) => kept.has(name)),
  },
}));
