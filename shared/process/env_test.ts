import assert from "node:assert/strict";
import * as env from "./env.ts";

const NO_FILES = (path: string): string => {
  throw new Error(`no file ${path}`);
};

function valueOf<T>(
  variable: env.Variable<T>,
  value: string | undefined,
): T | undefined {
  return env.parseEnv({ it: variable }, { IT: value }, NO_FILES)
    .it;
}

function mistakeOf(
  variables: env.Variables,
  given: env.Env,
  readFile = NO_FILES,
): string {
  try {
    env.parseEnv(variables, given, readFile);
  } catch (error) {
    if (error instanceof env.ConfigError) return error.message;
    throw error;
  }
  throw new Error("accepted");
}

const options = { name: "IT", meaning: "What it is" };
const ms = { ...options, unit: "milliseconds", min: 0 };

type Row = [
  kind: string,
  variable: env.Variable<unknown>,
  accepted: [text: string, value: unknown][],
  refused: string[],
];

const ROWS: Row[] = [
  ["port", env.port(options), [
    ["0", 0],
    ["8080", 8080],
    ["65535", 65_535],
    [" 80\n", 80],
  ], ["-1", "65536", "80.5", "http", "8080x", "0x50", "1e3"]],
  ["integer", env.integer({ ...ms, min: 1, max: 10 }), [["1", 1], ["10", 10], [
    "+5",
    5,
  ]], ["0", "11", "-1", "1.0", "five", "Infinity", "NaN"]],
  ["integer without a top", env.integer(ms), [[
    "9007199254740991",
    2 ** 53 - 1,
  ]], [
    "9007199254740992",
    "99999999999999999999999",
  ]],
  ["decimal", env.decimal({ ...options, unit: "shares", min: 0, max: 1 }), [
    ["0", 0],
    ["0.25", 0.25],
    [".5", 0.5],
    ["1", 1],
  ], ["-0.1", "1.1", ".", "1e-3", "half"]],
  ["choice", env.choice({ ...options, values: ["debug", "info"] }), [
    ["debug", "debug"],
    ["info", "info"],
  ], ["Info", "trace"]],
  ["list", env.list(options), [["a", ["a"]], [" a , b,,c ", ["a", "b", "c"]], [
    ",",
    [],
  ]], []],
  ["url", env.url({ ...options, protocols: ["http:", "https:"] }), [
    ["http://a", "http://a"],
    ["https://a.b:8080/v1/", "https://a.b:8080/v1/"],
  ], ["a", "ftp://a", "http://", "//a", "http:a b"]],
  ["urls", env.urls({ ...options, protocols: ["nats:"] }), [
    ["nats://a:4222", ["nats://a:4222"]],
    ["nats://a, nats://b", ["nats://a", "nats://b"]],
  ], ["http://a", "nats://a,b", ","]],
  ["secret", env.secret(options), [["abc", "abc"]], []],
  ["path", env.path(options), [["/a b/c", "/a b/c"], ["c", "c"]], ["a\0b"]],
  ["text", env.text(options), [["a b", "a b"]], ["a\nb", "a\u001bb"]],
];

for (const [kind, variable, accepted, refused] of ROWS) {
  Deno.test(`parseEnv() reads ${kind}`, () => {
    for (const [text, value] of accepted) {
      assert.deepEqual(valueOf(variable, text), value, text);
    }
    for (const text of refused) {
      assert.match(
        mistakeOf({ it: variable }, { IT: text }),
        /expected /,
        text,
      );
    }
  });
}

Deno.test("parseEnv() takes the fallback of what is absent or empty", () => {
  const variable = env.port({ ...options, fallback: 8080 });
  for (const value of [undefined, "", "  "]) {
    assert.equal(valueOf(variable, value), 8080);
  }
  assert.equal(valueOf(env.optional(env.path(options)), ""), undefined);
  assert.equal(valueOf(env.optional(env.path(options)), "/a"), "/a");
});

Deno.test("parseEnv() names all mistakes at once", () => {
  const message = mistakeOf({
    port: env.port({ name: "PORT", meaning: "Where clients connect" }),
    redis: env.url({
      name: "REDIS_URL",
      meaning: "The key store",
      protocols: ["redis:", "rediss:"],
    }),
    level: env.choice({
      name: "LOG_LEVEL",
      meaning: "Lines below it are dropped",
      values: ["debug", "info"],
      fallback: "info",
    }),
    fine: env.path({ name: "FINE", meaning: "Nothing wrong" }),
  }, { PORT: "abc", LOG_LEVEL: "loud", FINE: "1" });
  assert.equal(
    message,
    `3 mistakes in the environment:
  - PORT="abc"
    expected a port number from 0 to 65535, 0 for any free port (Where clients connect)
  - REDIS_URL is missing
    expected a URL that begins with redis:// or rediss:// (The key store)
  - LOG_LEVEL="loud"
    expected one of debug, info (Lines below it are dropped)`,
  );
});

Deno.test("parseEnv() never shows a secret", () => {
  const variables = {
    a: env.urls({
      ...options,
      name: "A",
      protocols: ["nats:"],
      isSecret: true,
    }),
    b: env.url({
      ...options,
      name: "B",
      protocols: ["redis:"],
      isSecret: true,
    }),
    c: env.url({ ...options, name: "C", protocols: ["redis:"] }),
    d: env.url({
      ...options,
      name: "D",
      protocols: ["redis:"],
      isSecret: true,
    }),
  };
  const message = mistakeOf(variables, {
    A: "hunter2",
    B: "http://user:hunter2@host",
    C: "http://user:hunter2@host",
    D_FILE: "/run/secrets/d",
  }, () => "hunter2");
  assert.match(message, /^4 mistakes/);
  assert.ok(!message.includes("hunter2"), message);
  assert.match(message, /C="http:\/\/\*\*\*@host"/);
});

Deno.test("parseEnv() cuts long values and strips what disturbs a terminal", () => {
  const variables = { it: env.port(options) };
  const message = mistakeOf(variables, {
    IT: `\u001b[31m${"x".repeat(9_999)}`,
  });
  assert.ok(message.length < 300);
  assert.ok(!message.includes("\u001b"));
});

Deno.test("parseEnv() reads a secret from the file that _FILE names", () => {
  const variables = {
    secret: env.secret(options),
    url: env.url({
      ...options,
      name: "U",
      protocols: ["redis:"],
      isSecret: true,
    }),
  };
  const files = new Map([["/s", "abc\n"], ["/u", "redis://:x@h"], [
    "/e",
    "\n",
  ]]);
  const readFile = (path: string) => files.get(path) ?? NO_FILES(path);
  assert.deepEqual(
    { ...env.parseEnv(variables, { IT_FILE: "/s", U_FILE: "/u" }, readFile) },
    { secret: "abc", url: "redis://:x@h" },
  );
  const rows: [env.Env, RegExp][] = [
    [{ IT: "a", IT_FILE: "/s", U_FILE: "/u" }, /IT and IT_FILE are both set/],
    [
      { IT_FILE: "/x", U_FILE: "/u" },
      /IT_FILE="\/x"\n\s+cannot read it: no file \/x/,
    ],
    [{ IT_FILE: "/e", U_FILE: "/u" }, /IT_FILE="\/e"\n\s+the file is empty/],
  ];
  for (const [given, message] of rows) {
    assert.match(mistakeOf(variables, given, readFile), message);
  }
});

Deno.test("a changing secret is read anew, and the last one goes on", () => {
  const variables = { it: env.changingSecret(options) };
  let content: string | null = "first\n";
  const readFile = (path: string) => content ?? NO_FILES(path);
  const { it } = env.parseEnv(variables, { IT_FILE: "/s" }, readFile);
  const seen = ["first\n", "second\n", "\n", null, "third"].map((text) => {
    content = text;
    return it();
  });
  assert.deepEqual(seen, ["first", "second", "second", "second", "third"]);
  assert.equal(
    env.parseEnv(variables, { IT: "fixed" }, NO_FILES).it(),
    "fixed",
  );
  content = "\n";
  assert.match(
    mistakeOf(variables, { IT_FILE: "/s" }, readFile),
    /the file is empty/,
  );
});

Deno.test("parseEnv() reads no file for what is no secret", () => {
  const variables = { it: env.path({ ...options, fallback: "default" }) };
  assert.equal(
    env.parseEnv(variables, { IT_FILE: "/s" }, NO_FILES).it,
    "default",
  );
});

Deno.test("parseEnv() gives a frozen config with the types of its variables", () => {
  const config = env.parseEnv(
    {
      port: env.port({ ...options, fallback: 1 }),
      level: env.choice({
        ...options,
        values: ["debug", "info"],
        fallback: "info",
      }),
      hosts: env.list({ ...options, fallback: [] }),
      file: env.optional(env.path({ ...options, name: "OTHER" })),
    },
    {},
    NO_FILES,
  );
  const port: number = config.port;
  const level: "debug" | "info" = config.level;
  const hosts: readonly string[] = config.hosts;
  const file: string | undefined = config.file;
  assert.deepEqual([port, level, hosts, file], [1, "info", [], undefined]);
  assert.ok(Object.isFrozen(config));
});

Deno.test("envTable() documents each variable", () => {
  const table = env.envTable({
    port: env.port({ ...options, fallback: 8080 }),
    pepper: env.secret({ name: "PEPPER", meaning: "Mixed | in" }),
    wait: env.integer({
      name: "WAIT_MS",
      meaning: "Patience",
      unit: "milliseconds",
      min: 1,
      max: 9,
      fallback: 5,
    }),
    hosts: env.list({ name: "HOSTS", meaning: "Names", fallback: [] }),
    file: env.optional(env.path({ name: "FILE", meaning: "A file" })),
  });
  assert.equal(
    table,
    `| Variable | Meaning | Value | Default |
| --- | --- | --- | --- |
| \`IT\` | What it is | a port number from 0 to 65535, 0 for any free port | \`8080\` |
| \`PEPPER\` or \`PEPPER_FILE\` | Mixed \\| in | a secret text | required |
| \`WAIT_MS\` | Patience | a whole number of milliseconds from 1 to 9 | \`5\` |
| \`HOSTS\` | Names | a list separated by commas | none |
| \`FILE\` | A file | a path | none |
`,
  );
});

Deno.test("EXIT_CONFIG is what sysexits.h says", () => {
  assert.equal(env.EXIT_CONFIG, 78);
});
