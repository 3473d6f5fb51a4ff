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

/** Images with `gateway check`, which needs no packages of its own. */
const WITH_CHECK = ["chat-worker", "media-worker", "key-admin"];

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
    const programs = [`services/${service}/main.ts`];
    if (WITH_CHECK.includes(service)) {
      const check = "deploy/check";
      await runProcess("mkdir", ["deploy"], { cwd });
      await runProcess("cp", ["-R", `${ROOT}/${check}`, check], { cwd });
      programs.push(`${check}/main.ts`);
    }
    const allow = ["--allow-read", "--allow-write", "--allow-run"];
    const script = `${ROOT}/deploy/image/slim.ts`;
    const slim = ["run", ...allow, script, ...programs];
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
    if (programs.length === 1) return;
    const help = ["run", "-q", "--frozen", "-ER", ...programs.slice(1)];
    const output = await runProcess(Deno.execPath(), [...help, "--help"], {
      cwd,
    });
    assert.match(output, /^Usage: gateway check/);
  });
}
