// Promise: an image contains the packages that its service imports, and no others.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { startProcess } from "../support/process.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const OF_TESTS = ["ajv", "axe-core", "openai", "playwright-core"];
const OF_THE_CONSOLE = ["@node-rs/argon2", "openid-client"];
const IMAGES: [service: string, needs: string[], spares: string[]][] = [
  ["edge-auth", ["@redis/client", "zod"], [...OF_THE_CONSOLE, "hono"]],
  ["chat-worker", ["@nats-io/transport-node", "zod"], [
    ...OF_THE_CONSOLE,
    "hono",
  ]],
  ["media-worker", ["@nats-io/transport-node", "zod"], [
    ...OF_THE_CONSOLE,
    "hono",
  ]],
  ["key-admin", [...OF_THE_CONSOLE, "@redis/client", "hono", "zod"], []],
];

/** `@redis/client` of `npm:/@redis/client@6.3.1/`. */
function nameOf(specifier: string): string {
  return specifier.replace(/^npm:\/?/, "").replace(/@[\d.]+\/?$/, "");
}

/** The files that the build of an image copies, without tests and their fixtures. */
async function copySources(target: string): Promise<void> {
  await using copy = startProcess({
    command: "cp",
    args: ["-R", "deno.json", "deno.lock", "shared", "services", target],
    cwd: ROOT,
  });
  const { success } = await copy.exited;
  assert.ok(success, copy.output());
}

for (const [service, needs, spares] of IMAGES) {
  Deno.test(`the image of ${service} contains only the packages it imports`, async () => {
    const directory = await Deno.makeTempDir({ prefix: "gateway_test_" });
    try {
      await copySources(directory);
      await using slim = startProcess({
        command: Deno.execPath(),
        args: [
          ...["run", "--allow-read", "--allow-write", "--allow-run"],
          ...[`${ROOT}/deploy/image/slim.ts`, `services/${service}/main.ts`],
        ],
        cwd: directory,
      });
      const { success } = await slim.exited;
      assert.ok(success, slim.output());
      const read = (name: string) => Deno.readTextFile(`${directory}/${name}`);
      const config = JSON.parse(await read("deno.json"));
      const lock = JSON.parse(await read("deno.lock"));
      const carried = new Set(Object.keys(lock.specifiers).map(nameOf));
      const targets = Object.values<string>(config.imports).map(nameOf);
      assert.deepEqual(new Set(targets), carried);
      assert.deepEqual(needs.filter((name) => !carried.has(name)), []);
      const needless = [...OF_TESTS, ...spares];
      assert.deepEqual(needless.filter((name) => carried.has(name)), []);
    } finally {
      await Deno.remove(directory, { recursive: true });
    }
  });
}
