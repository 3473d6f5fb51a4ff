// Promise: every row of ASVS 5.0 and of the OWASP API Security Top 10 (2023) that
// applies has a test with its id in its name, and no test claims any other row.
import assert from "node:assert/strict";
import { readSource, readSources } from "./support/repository/source_files.ts";

/** Rows that need a test, by chapter. */
const TESTED = {
  encoding: "1.2.1 1.2.4 1.2.10 1.3.2 1.5.3",
  validation: "2.2.1 2.2.2 2.3.3 2.3.4 2.4.1",
  webFrontEnd: "3.2.2 3.3.1-3.3.4 3.4.1-3.4.6 3.5.1-3.5.4 3.6.1 3.7.2",
  api: "4.1.1-4.1.4 4.2.1",
  files: "5.2.1",
  authentication: "6.1.1 6.1.2 6.2.1-6.2.9 6.3.1-6.3.3 6.3.5 6.3.8 6.4.1 " +
    "6.5.1 6.5.2 6.8.1",
  sessions: "7.1.1 7.2.2-7.2.4 7.3.1 7.3.2 7.4.1 7.4.3 7.5.1-7.5.3",
  authorization: "8.2.1 8.2.2 8.3.2 8.4.1",
  openIdConnect: "10.1.2 10.2.1 10.5.1-10.5.4",
  cryptography: "11.2.1 11.4.2 11.5.1",
  // The other rows are of level 3, or about certificates and ciphers of the operator's.
  communication: "12.1.1 12.2.1 12.3.1 12.3.2 12.3.4",
  configuration: "13.2.1-13.2.3 13.4.4 13.4.5",
  dataProtection: "14.2.1 14.3.2",
  secureCoding: "15.3.1 15.3.3 15.3.4 15.3.6",
  logging: "16.2.5 16.3.1-16.3.3 16.4.1 16.5.1-16.5.3",
  apiTop10: "API1 API2 API3 API4 API5 API6 API7 API8 API9 API10",
};

const FOLDERS = ["shared", "services", "tests", "deploy"];
/** The name of a test or a step, as `deno test` prints it. */
const NAME =
  /(?:\b(?:Deno\.)?test|\.step)\(\s*(?:\{\s*name:\s*)?(["`])((?:\\.|(?!\1)[\s\S])*)\1/g;
const ASVS = /\bASVS ((?:\d+\.\d+\.\d+(?:-\d+\.\d+\.\d+)?(?:, )?)+)/g;
const API = /\bAPI\d+\b/g;

/** `3.4.1-3.4.3` -> `3.4.1`, `3.4.2`, `3.4.3`. */
function idsOf(item: string): string[] {
  const [, section, first, last = first] =
    /^([\d.]+\.)(\d+)(?:-[\d.]+\.(\d+))?$/.exec(item) ?? [];
  if (section === undefined) return [item];
  const length = Number(last) - Number(first) + 1;
  return Array.from({ length }, (_, n) => `${section}${Number(first) + n}`);
}

/** The rows that the name of a test claims. */
function rowsIn(name: string): string[] {
  const asvs = [...name.matchAll(ASVS)].flatMap(([, list = ""]) =>
    list.split(", ").filter((item) => item !== "").flatMap(idsOf)
  );
  return [...asvs, ...name.match(API) ?? []];
}

Deno.test("every row of ASVS and of the API Top 10 that applies has a test named after it", () => {
  const names = readSources(FOLDERS, /_test\.tsx?$/)
    .flatMap(({ text }) => [...text.matchAll(NAME)])
    .map(([, , name = ""]) => name);
  assert.ok(names.length > 500, "the names were found");
  const shown = [...new Set(names.flatMap(rowsIn))];
  const tested = Object.values(TESTED).join(" ").split(" ").flatMap(idsOf);
  assert.deepEqual(tested.filter((id) => !shown.includes(id)), []);
  const unknown = shown.filter((id) => !tested.includes(id));
  assert.deepEqual(unknown, [], "rows that tests claim wrongly");
});

/**
 * Where secrets are made, stored and compared; not the connections, which use random
 * delays between attempts.
 */
const SECRET_PLACES =
  /^(shared\/(keys|ids)|services\/key-admin\/(domain(?!\/(store\/redis|keys\/notice|models\/worker_follower|running\/ask_running)\.ts)|web|cli))/;
const CRYPTO_IMPORTS =
  /from "((?:node:crypto|[^"]*(?:argon|bcrypt|scrypt|jose|openid|oslo|sha|hmac)[^"]*))"/g;

Deno.test("ASVS 11.2.1, 11.5.1: only the platform and two libraries make and compare secrets", () => {
  const code = readSources(FOLDERS, /(?<!_test|_fixture)\.tsx?$/)
    .filter(({ path }) => SECRET_PLACES.test(path));
  assert.ok(code.length > 30);
  const used = new Set<string>();
  for (const { path, text } of code) {
    const bare = text.replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
    assert.ok(!/Math\.random/.test(bare), `${path}: Math.random`);
    for (const [, name = ""] of bare.matchAll(CRYPTO_IMPORTS)) {
      if (!/^\.|@gateway\//.test(name)) used.add(name);
    }
  }
  const libraries = ["@node-rs/argon2", "node:crypto", "openid-client"];
  assert.deepEqual([...used].sort(), libraries);
});

Deno.test("ASVS 4.1.3, 15.3.4: neither the runtime nor a deployment takes an address from a header", () => {
  const all = readSources(["deploy", "services", "shared"], /./)
    .map(({ text }) => text);
  const texts = [...all, ...["Dockerfile", "compose.yaml"].map(readSource)];
  const header = /x-deno-client-address|DENO_TRUST_PROXY_HEADERS/i;
  assert.deepEqual(texts.filter((text) => header.test(text)), []);
});
