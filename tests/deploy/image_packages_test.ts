// Promise: an image carries the packages that its service imports, no others.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { startProcess } from "../support/process.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const EVERYWHERE = [
  "@nats-io/transport-node",
  "@redis/client",
  "prom-client",
  "zod",
];
const IMAGES: [service: string, more: string[]][] = [
  ["edge-auth", ["@opentelemetry/api", "hono"]],
  ["chat-worker", ["@opentelemetry/api"]],
  ["key-admin", ["@node-rs/argon2", "hono", "openid-client"]],
];

/** `@redis/client` of `npm:/@redis/client@6.3.1/`. */
function nameOf(specifier: string): string {
  return specifier.replace(/^npm:\/?/, "").replace(/@[\d.]+\/?$/, "");
}

/** What the build of an image copies, without tests and their fixtures. */
async function copySources(target: string): Promise<void> {
  await using copy = startProcess({
    command: "cp",
    args: ["-R", "deno.json", "deno.lock", "shared", "services", target],
    cwd: ROOT,
  });
  const { success } = await copy.exited;
  assert.ok(success, copy.output());
}

for (const [service, more] of IMAGES) {
  Deno.test(`the image of ${service} carries what it imports`, async () => {
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
      const config = JSON.parse(
        await Deno.readTextFile(`${directory}/deno.json`),
      );
      const lock = JSON.parse(
        await Deno.readTextFile(`${directory}/deno.lock`),
      );
      const expected = [...EVERYWHERE, ...more].sort();
      const targets = Object.values<string>(config.imports).map(nameOf);
      assert.deepEqual([...new Set(targets)].sort(), expected);
      assert.deepEqual(Object.keys(lock.specifiers).map(nameOf), expected);
    } finally {
      await Deno.remove(directory, { recursive: true });
    }
  });
}
