// Promise: the documents say what the code does, and the description of the API is
// valid. What they repeat is generated (`deno task docs`), compared, or checked to
// exist.
import assert from "node:assert/strict";
import { join } from "node:path/posix";
import { KEY_LIMITS } from "@gateway/shared/keys/limits";
import {
  BODY_DEADLINES,
  BODY_PIECES,
  REFUSED_BODIES,
  REQUEST_LIMITS,
  SERVER_LIMITS,
} from "@gateway/shared/limits";
import document from "@gateway/shared/openai/openapi" with { type: "json" };
import { VERSION } from "@gateway/shared/version";
import { Validator } from "@seriousme/openapi-schema-validator";
import { generatedFiles, SERVICE_VARIABLES } from "../deploy/docs/pages.ts";
import { EXIT_CODES_HELP } from "../services/key-admin/cli/command_line.ts";
import * as attempts from "../services/key-admin/domain/sign_in/attempts.ts";
import { LINK_SECONDS } from "../services/key-admin/domain/sign_in/links.ts";
import {
  CONTEXT_WORDS,
  EXAMINED_CHARS_MAX,
  GUESSES_LOG10_MIN,
  PASSWORD_CHARS_MAX,
  PASSWORD_CHARS_MIN,
} from "../services/key-admin/domain/sign_in/password.ts";
import { SESSION_LIMITS } from "../services/key-admin/domain/sign_in/sessions.ts";
import { TRY_LIMITS } from "../services/key-admin/domain/try/key.ts";
import { CREATION_RATE } from "../services/key-admin/web/pages/keys/key_created.tsx";
import { billOfMaterials } from "../deploy/docs/sbom.ts";
import { readControls } from "../services/model-simulator/serving/controls.ts";
import { assertDescribed, validatorOf } from "./support/api_document.ts";
import {
  readSource,
  readSources,
  SOURCE_FOLDERS,
} from "./support/repository/source_files.ts";

const ROOT_PAGES = [
  "README.md",
  "ARCHITECTURE.md",
  "CONTRIBUTING.md",
  "CHANGELOG.md",
];
const pages = [
  ...ROOT_PAGES.map((path) => ({ path, text: readSource(path) })),
  ...readSources(["docs", "deploy"], /\.md$/),
];
const textOf = (...paths: string[]) => paths.map(readSource).join("\n");
/** Every match of the first group of `form`. */
const found = (text: string, form: RegExp) =>
  [...text.matchAll(form)].map(([, first = ""]) => first);

Deno.test("the generated pages are up to date (else: deno task docs)", async () => {
  for (const [path, text] of await generatedFiles()) {
    assert.equal(readSource(path), text, path);
  }
  assert.doesNotMatch(textOf("docs/errors.md"), /\| +\|$/m, "no meaning");
});

Deno.test("the changelog begins with the version of the code", () => {
  const [top] = found(textOf("CHANGELOG.md"), /^## (\S+)/gm);
  assert.equal(top, VERSION);
  const others = readSources(["services"], /(^|\/)deno\.json$/)
    .filter(({ text }) => text.includes('"version"'));
  assert.deepEqual(others, [], "a second place");
});

/** The anchor of a heading, as GitHub makes it. */
const anchorOf = (heading: string) =>
  heading.toLowerCase().replace(/[^\p{L}\p{N} _-]/gu, "").replace(/ /g, "-");

/** What is wrong with a link to `target` from the folder of `path`. */
function faultOf(path: string, target: string): string | null {
  const [file = "", anchor] = target.split("#");
  const to = file === "" ? path : join(path, "..", file);
  try {
    Deno.statSync(new URL(`../${to}`, import.meta.url));
  } catch {
    return `${path}: no ${to}`;
  }
  if (anchor === undefined) return null;
  const headings = found(textOf(to), /^#+ (.*)$/gm).map(anchorOf);
  return headings.includes(anchor) ? null : `${path}: no ${to}#${anchor}`;
}

Deno.test("links lead to files and headings that exist", () => {
  const links = pages.flatMap(({ path, text }) =>
    found(text, /\]\((?!https?:)([^)\s]+)\)/g).map((to) => faultOf(path, to))
  );
  const roots = ["compose.yaml", "compose.cluster.yaml", ".env.example"]
    .map((path) => ({ path, text: readSource(path) }));
  const mentions = [...readSources(SOURCE_FOLDERS, /./), ...roots]
    .filter(({ path }) => !/\.(md|png)$/.test(path))
    .flatMap(({ text, path }) =>
      found(text, /\b(docs\/[\w/]+\.md(?:#[\w-]+)?)/g)
        .map((to) => faultOf("README.md", to) && `${path}: ${to}`)
    );
  assert.ok(links.length > 250, `only ${links.length} links`);
  assert.ok(mentions.length > 50, `only ${mentions.length} mentions`);
  assert.deepEqual([...links, ...mentions].filter((fault) => fault), []);
});

Deno.test("every family of keys in Redis that a user may touch is described", () => {
  const families = found(
    textOf("deploy/redis/users.acl"),
    /%R?W?~([a-z_]+)/g,
  );
  const described = found(
    textOf("ARCHITECTURE.md", "shared/keys/record.ts"),
    /`([a-z_]+)(?=[:`])/g,
  );
  assert.ok(families.length > 100, `only ${families.length} permissions`);
  const missing = families.filter((family) => !described.includes(family));
  assert.deepEqual(missing, []);
});

Deno.test("files that documents name exist", () => {
  const paths = readSources(SOURCE_FOLDERS, /./).map(({ path }) => `/${path}`);
  const missing = pages.flatMap(({ path, text }) =>
    found(text, /`([\w./-]+\.(?:ts|tsx|sh|yml|conf|acl|lua))`/g)
      .filter((file) => !paths.some((path) => path.endsWith(`/${file}`)))
      .map((file) => `${path}: ${file}`)
  );
  assert.deepEqual(missing, []);
});

/** How many tests the pages name at least. */
const FAULT_PAGES = { faults: 50, money: 19 };

Deno.test("docs/evidence names a test that exists for each fault", () => {
  for (const [name, atLeast] of Object.entries(FAULT_PAGES)) {
    checkFaults(textOf(`docs/evidence/${name}.md`), atLeast);
  }
});

function checkFaults(page: string, atLeast: number): void {
  const shown = [...page.matchAll(/`([^`]+_(?:test|checks)\.ts)`: ([^;|]+)/g)];
  const missing = shown.filter(([, file = "", title = ""]) =>
    !readSource(file).includes(title.trim())
  );
  assert.deepEqual(missing.map(([text]) => text), []);
  assert.ok(shown.length > atLeast, `only ${shown.length}`);
  const bare = found(page, /^(\| (?!what fails|fault )[a-z0-9].*)$/gm)
    .filter((row) => !/_(test|checks)\.ts`|see below/.test(row));
  assert.deepEqual(bare, []);
}

Deno.test("the simulator knows the phrases of docs/models.md", () => {
  const [, table = ""] = textOf("docs/models.md").split("| phrase");
  const phrases = found(table.split("\n\n")[0] ?? "", /^\| `([^`]+)`/gm);
  assert.equal(phrases.length, 11);
  for (const phrase of phrases) {
    assert.notDeepEqual(readControls(`[simulator: ${phrase}]`), {}, phrase);
  }
});

/**
 * An event where it is written: by a log, or by a function that passes it on as an
 * error.
 */
const EVENT =
  /(?:\blog(?:ger)?\??\.(?<level>debug|info|warn|error|notice)|#logSometimes)\(\s*"(?<logged>\w+)"|\bfailure = "(?<failure>\w+)"/g;
/** A log call whose event is no literal: the two that pass on one of the above. */
const PASSED_ON =
  /\blog\??\.(?:debug|info|warn|error|notice)\(\s*([^"\s)]\w*)/g;

Deno.test("docs/reference/log_events.md lists every event, with its levels and its services", () => {
  const code = readSources(
    ["services", "shared"],
    /(?<!_test|_fixture)\.tsx?$/,
  );
  const levels = new Map<string, Set<string>>();
  const services: [event: string, service: string][] = [];
  for (const { path, text } of code) {
    for (const { groups = {} } of text.matchAll(EVENT)) {
      const { level = "error", logged, failure } = groups;
      const event = logged ?? failure ?? "";
      const names = levels.get(event) ?? new Set();
      levels.set(event, names.add(level === "notice" ? "info" : level));
      const [, service] = /^services\/([^/]+)\//.exec(path) ?? [];
      if (service !== undefined) services.push([event, service]);
    }
  }
  const passedOn = code.flatMap(({ text }) => found(text, PASSED_ON));
  assert.deepEqual(passedOn.sort(), ["event", "failure"]);
  const rows = found(textOf("docs/reference/log_events.md"), /^\| (`.*)$/gm)
    .map((row) => row.split("|").map((cell) => cell.trim()));
  for (const row of rows) assert.equal(row.length, 6, row.join("|"));
  const listed = rows.map(([name = "", level]) =>
    `${name.split("`")[1]}: ${level}`
  );
  const logged = [...levels].map(([event, some]) =>
    `${event}: ${[...some].sort().join(", ")}`
  );
  assert.deepEqual(listed.sort(), logged.sort());
  const missing = services.filter(([event, service]) => {
    const row = rows.find(([name]) => name === `\`${event}\``);
    return !/^all/.test(row?.[2] ?? "") && !row?.[2]?.includes(service);
  });
  assert.deepEqual(missing, []);
});

const compose = readSource("compose.yaml");
/** The lines of compose.yaml that belong to the one that begins with `head`. */
function below(head: string): string {
  const lines = compose.split("\n");
  const at = lines.findIndex((line) => line.startsWith(`${head}:`));
  const rest = lines.slice(at + 1);
  const end = rest.findIndex((line) =>
    /\S/.test(line) && depth(line) <= depth(head)
  );
  return rest.slice(0, end).join("\n");
}
const depth = (line: string) => line.search(/\S/);

/** Variables that compose leaves to the image. */
const NOT_PASSED = ["HOST", "PORT", "OPS_HOST", "OPS_PORT"];

Deno.test("compose.yaml passes on every variable of the services, and .env.example has them all", () => {
  const defaults = new Map<string, string>();
  for (const [service, variables] of Object.entries(SERVICE_VARIABLES)) {
    const own = below(`  ${service}`);
    const merged = found(own, /\*([\w-]+-env)\b/g).map((name) => `x-${name}`);
    const passed = [own, ...merged.map(below)].join("\n");
    const missing = Object.entries(variables).filter(([name, schema]) => {
      defaults.set(name, String(schema.safeParse(undefined).data ?? ""));
      const isPassed = new RegExp(`^ +${name}(?:_FILE)?: `, "m").test(passed);
      return isPassed === NOT_PASSED.includes(name);
    });
    assert.deepEqual(missing.map(([name]) => name), [], service);
  }
  const files = readSource("compose.cluster.yaml") + compose;
  const used = [...files.matchAll(/(?<!\$)\$\{(\w+):-([^}]*)\}/g)]
    .map(([, name = "", value]) => [name, value || defaults.get(name) || ""]);
  const example = readSource(".env.example").matchAll(/^#?([A-Z_]+)=(.*)$/gm);
  assert.deepEqual(
    Object.fromEntries([...example].map(([, ...setting]) => setting)),
    Object.fromEntries(used),
  );
  assert.match(below("  chat-worker"), /env_file:\n.*model_keys\.env/);
});

Deno.test("the bill of materials has every package of the lock file", () => {
  const lock = JSON.parse(readSource("deno.lock"));
  const { components, dependencies } = billOfMaterials(lock);
  assert.equal(components.length, Object.keys(lock.npm).length);
  const refs = new Set(components.map((component) => component["bom-ref"]));
  const ids = dependencies.flatMap(({ dependsOn }) => dependsOn);
  assert.deepEqual(ids.filter((ref) => !refs.has(ref)), []);
  const redis = components.find(({ name }) => name === "@redis/client");
  assert.match(redis?.purl ?? "", /^pkg:npm\/%40redis\/client@\d+\.\d+\.\d+$/);
  const excluded = components.filter(({ scope }) => scope === "excluded");
  assert.ok(excluded.some(({ name }) => name === "playwright-core"));
  assert.ok(!excluded.some(({ name }) => name === "zod"));
});

const number = (value: number) => value.toLocaleString("en");
const rate = ({ count, perMs }: attempts.Rate) =>
  `${count} attempts at once, then one every ${perMs / count / 1_000} seconds`;
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const { idleMs, absoluteMs, freshMs } = SESSION_LIMITS;
const { free, waitMs, waitMsMax } = attempts.ACCOUNT_RULE;
const KNOWN_WORDS = ["gateway", "console", "openai", "apikey", "admin"];

/**
 * The sentences of docs/security.md and docs/keys.md that have numbers, with the
 * numbers of the code.
 */
const SENTENCES = [
  `after ${idleMs / MINUTE_MS} minutes without a request`,
  `and after ${absoluteMs / HOUR_MS} hours in any case`,
  "An hour after the password was last entered",
  `works for ${
    TRY_LIMITS.keyMs / MINUTE_MS
  } minutes, may send ${TRY_LIMITS.key.requestsPerMinute} requests and ${
    number(TRY_LIMITS.key.tokensPerMinute)
  } tokens per minute, ${TRY_LIMITS.key.concurrency} at the same time`,
  `**An address** (for IPv6 a /64): ${rate(attempts.ADDRESS_RATE)}`,
  `IPv6 /48 has ${attempts.SITE_RATE.count} attempts and a /32 ${attempts.PROVIDER_RATE.count}`,
  `first ${attempts.OWN_RATE.count} attempts of an address do not count`,
  `The shared limit is ${rate(attempts.POOL_RATE)}`,
  `at most ${number(attempts.TOTAL_RATE.count)} attempts a minute`,
  `${waitMs / 1_000} second at first, ${waitMsMax / MINUTE_MS} minutes at most`,
  `for ${LINK_SECONDS.set_up / 60} minutes`,
  `(\`owners invite\`, ${LINK_SECONDS.invite / 3_600} hours)`,
  `\`owners reset\` (${LINK_SECONDS.reset / 3_600} hour)`,
  `${PASSWORD_CHARS_MIN} to ${PASSWORD_CHARS_MAX} characters`,
  `fewer than 10^${GUESSES_LOG10_MIN} guesses`,
  `first ${EXAMINED_CHARS_MAX} characters`,
  ...KNOWN_WORDS.map((word) => `\`${word}\``),
  "ten keys in a row in the console, then one every six seconds",
  `at most ${number(KEY_LIMITS.keysPerOwnerMax)} keys`,
  `deeper than ${REQUEST_LIMITS.depthMax} levels`,
  `more than ${REQUEST_LIMITS.topLevelKeysMax} members at the top or ` +
  `${number(REQUEST_LIMITS.membersMax)} in all`,
  `more than ${number(BODY_PIECES.free)} pieces, and in more than one per ` +
  `${BODY_PIECES.bytesMin} bytes`,
  `${REFUSED_BODIES.shareOfCore * 100} % of a core`,
  `Headers that are not complete after ${SERVER_LIMITS.headMs / 1_000} seconds`,
  `stop arriving for ${BODY_DEADLINES.progressMs / 1_000} seconds or take ` +
  `${BODY_DEADLINES.totalMs / 1_000}`,
];

Deno.test("ASVS 6.1.1, 6.1.2, 6.4.1, 7.1.1, API6: the documents have the numbers of the code", () => {
  const pages = textOf("docs/security.md", "docs/keys.md");
  const text = pages.replaceAll(/\s+/g, " ");
  assert.deepEqual(SENTENCES.filter((one) => !text.includes(one)), []);
  assert.deepEqual([freshMs, free], [HOUR_MS, 5]);
  const words = CONTEXT_WORDS;
  assert.ok(KNOWN_WORDS.every((word) => words.includes(word)));
  assert.deepEqual(CREATION_RATE, { count: 10, perMs: MINUTE_MS });
  const codes = found(text, /\| (\d+) \|/g);
  assert.deepEqual(codes, EXIT_CODES_HELP.match(/\d+/g));
});

Deno.test("the description of the API is valid OpenAPI 3.1", async () => {
  const validator = new Validator();
  const copy: typeof document = structuredClone(document);
  const { valid, errors } = await validator.validate(copy);
  assert.ok(valid, JSON.stringify(errors));
  assert.equal(validator.version, "3.1");
  // Also that every reference leads somewhere.
  validator.resolveRefs();
});

Deno.test("every field of a request and every error code is described, and the examples are valid", () => {
  const { schemas, examples } = document.components;
  const fields = Object.entries(schemas.ChatCompletionRequest.properties);
  const silent = fields.filter(([, field]) => !field.description);
  assert.deepEqual(silent.map(([name]) => name), []);
  for (const [code, { description, value }] of Object.entries(examples)) {
    assert.match(description, /^[^|]+[.)]$/, code);
    assert.ok(validatorOf("Error")(value), code);
  }
  const { requestBody } = document.paths["/v1/chat/completions"].post;
  const requests = requestBody.content["application/json"].examples;
  for (const { value } of Object.values(requests)) assertDescribed(value);
});
