// Promise: an image contains the packages that its service imports, and no others.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { runProcess } from "../support/process.ts";
import { makeScratch } from "../up/stand_ins/launcher.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const OF_TESTS = [
  "@anthropic-ai/sdk",
  "ajv",
  "axe-core",
  "openai",
  "playwright-core",
];
const OF_THE_CONSOLE = ["@node-rs/argon2", "openid-client", "hono"];
const IMAGES: { [service: string]: string[] } = {
  "edge-auth": ["@redis/client", "zod"],
  "chat-worker": ["@nats-io/transport-node", "zod"],
  "media-worker": ["@nats-io/transport-node", "zod"],
  "key-admin": ["@redis/client", "zod", ...OF_THE_CONSOLE],
};

/** `@redis/client` of `npm:/@redis/client@6.3.1/`. */
const nameOf = (specifier: string) =>
  specifier.replace(/^npm:\/?/, "").replace(/@[\d.]+\/?$/, "");

for (const [service, needs] of Object.entries(IMAGES)) {
  Deno.test(`the image of ${service} contains only the packages it imports`, async () => {
    await using scratch = await makeScratch();
    const cwd = scratch.path;
    // What its build copies, without tests and their fixtures.
    const sources = ["deno.json", "deno.lock", "shared", "services"];
    await runProcess("cp", ["-R", ...sources, cwd], { cwd: ROOT });
    const main = `services/${service}/main.ts`;
    const allow = ["--allow-read", "--allow-write", "--allow-run"];
    const slim = ["run", ...allow, `${ROOT}/deploy/image/slim.ts`, main];
    await runProcess(Deno.execPath(), slim, { cwd });
    const read = async (name: string) =>
      JSON.parse(await Deno.readTextFile(`${cwd}/${name}`));
    const { imports } = await read("deno.json");
    const { specifiers } = await read("deno.lock");
    const carried = new Set(Object.keys(specifiers).map(nameOf));
    const targets = Object.values<string>(imports).map(nameOf);
    assert.deepEqual(new Set(targets), carried);
    const found = [...needs, ...OF_TESTS, ...OF_THE_CONSOLE]
      .filter((name) => carried.has(name));
    assert.deepEqual(new Set(found), new Set(needs));
  });
}
