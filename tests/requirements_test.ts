/**
 * Guarantee: every row of the requirements that applies has a test with its id in
 * its name, and no test claims a row that nobody has.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { API_ROWS, ASVS_ROWS, type Row } from "./requirement_rows.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const FOLDERS = ["shared", "services", "tests", "deploy"];
/** The name of a test or a step, as `deno test` prints it. */
const NAME =
  /(?:\bDeno\.test|\.step)\(\s*(?:\{\s*name:\s*)?(["`])((?:\\.|(?!\1)[\s\S])*)\1/g;
const ASVS = /\bASVS ((?:\d+\.\d+\.\d+(?:-\d+\.\d+\.\d+)?(?:, )?)+)/g;
const API = /\bAPI\d+\b/g;

function sources(folder: string, form: RegExp): string[] {
  const found: string[] = [];
  for (const { name, isDirectory } of Deno.readDirSync(join(ROOT, folder))) {
    const path = `${folder}/${name}`;
    if (isDirectory && name !== "node_modules") {
      found.push(...sources(path, form));
    } else if (form.test(path)) found.push(path);
  }
  return found;
}

const read = (path: string): string => Deno.readTextFileSync(join(ROOT, path));

/** `3.4.1-3.4.3` -> `3.4.1`, `3.4.2`, `3.4.3`. */
function idsOf(item: string): string[] {
  const [first = "", last = first] = item.split("-");
  const section = first.slice(0, first.lastIndexOf(".") + 1);
  const numberOf = (id: string) => Number(id.split(".").at(-1));
  return Array.from(
    { length: numberOf(last) - numberOf(first) + 1 },
    (_, n) => `${section}${numberOf(first) + n}`,
  );
}

/** The rows that the name of a test claims to show. */
function rowsIn(name: string): string[] {
  const asvs = [...name.matchAll(ASVS)].flatMap(([, list = ""]) =>
    list.split(", ").filter((item) => item !== "").flatMap(idsOf)
  );
  return [...asvs, ...name.match(API) ?? []];
}

function claimed(): Set<string> {
  const names = FOLDERS.flatMap((folder) => sources(folder, /_test\.tsx?$/))
    .flatMap((path) => [...read(path).matchAll(NAME)])
    .map((match) => match[2] ?? "");
  assert.ok(names.length > 1_000, "the names were found");
  return new Set(names.flatMap(rowsIn));
}

const ROWS: Record<string, Row> = { ...ASVS_ROWS, ...API_ROWS };

Deno.test("every row of ASVS and of the API Top 10 that applies has a test named after it", () => {
  const shown = claimed();
  const missing = Object.entries(ROWS)
    .filter(([id, reason]) => reason === null && !shown.has(id));
  assert.deepEqual(missing.map(([id]) => id), []);
  const surplus = [...shown].filter((id) => ROWS[id] === undefined);
  assert.deepEqual(surplus, [], "rows that no test claims wrongly");
  const both = [...shown].filter((id) => typeof ROWS[id] === "string");
  assert.deepEqual(both, [], "rows that do not apply, and have a test");
});

Deno.test("rowsIn() reads ids out of a test's name", () => {
  assert.deepEqual(rowsIn("ASVS 3.3.1-3.3.3, 4.1.1: a, b"), [
    ...["3.3.1", "3.3.2", "3.3.3", "4.1.1"],
  ]);
  assert.deepEqual(rowsIn("API2, ASVS 14.2.1 (x): y"), ["14.2.1", "API2"]);
  assert.deepEqual(rowsIn("version 1.2.3 of an API"), []);
});

/** Where secrets are made, kept and compared; not the connections, which wait a random time between tries. */
const SECRET_PLACES =
  /^(shared\/(keys|ids)|services\/key-admin\/(domain(?!\/(store\/redis|keys\/notice)\.ts)|web|cli))/;
const CRYPTO_IMPORTS =
  /from "((?:node:crypto|[^"]*(?:argon|bcrypt|scrypt|jose|openid|oslo|sha|hmac)[^"]*))"/g;

Deno.test("ASVS 11.2.1, 11.5.1: secrets are made and compared by the platform's functions and two libraries, none of ours", () => {
  const code = FOLDERS.flatMap((folder) => sources(folder, /\.tsx?$/))
    .filter((path) => SECRET_PLACES.test(path))
    .filter((path) => !/_(test|fixture)\.tsx?$/.test(path));
  assert.ok(code.length > 40);
  const used = new Set<string>();
  for (const path of code) {
    const text = read(path).replace(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
    assert.ok(!/Math\.random/.test(text), `${path}: Math.random`);
    for (const match of text.matchAll(CRYPTO_IMPORTS)) {
      if (!match[1]?.startsWith(".") && !match[1]?.includes("@gateway/")) {
        used.add(match[1] ?? "");
      }
    }
  }
  assert.deepEqual([...used].sort(), [
    "@node-rs/argon2",
    "node:crypto",
    "openid-client",
  ]);
});

Deno.test("ASVS 4.1.3, 15.3.4: no header of the runtime's own is believed about who asks, and no deployment switches that on", () => {
  const deployed = ["Dockerfile", "compose.yaml", ...sources("deploy", /./)];
  const running = ["services", "shared"]
    .flatMap((folder) => sources(folder, /\.tsx?$/));
  for (const path of [...deployed, ...running]) {
    assert.ok(
      !/x-deno-client-address|DENO_TRUST_PROXY_HEADERS/i.test(read(path)),
      path,
    );
  }
});
