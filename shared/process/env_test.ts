/** Variables of the environment, and mistakes in them. */
import assert from "node:assert/strict";
import * as env from "./env.ts";

const NO_FILES = (path: string): string => {
  throw new Error(`no file ${path}`);
};

function valueOf<T>(variable: env.Variable<T>, text: string): T {
  return env.parseEnv({ IT: variable }, { IT: text }, NO_FILES).IT;
}

function mistakeOf(
  variables: env.Variables,
  environment: env.Env,
  readFile = NO_FILES,
): string {
  try {
    env.parseEnv(variables, environment, readFile);
  } catch (error) {
    if (error instanceof env.ConfigError) return error.message;
    throw error;
  }
  throw new Error("accepted");
}

const WORD = env.matching(/^\w+$/);

type Kind = [
  variable: env.Variable<unknown>,
  accepted: [text: string, value: unknown][],
  refused: string[],
];
const same = (text: string): [string, string] => [text, text];
const MS = { min: 1, max: 10 };

const KINDS: { [kind: string]: Kind } = {
  "a port": [
    env.port(),
    [["0", 0], ["8080", 8080], ["65535", 65_535], [" 80\n", 80]],
    ["-1", "65536", "80.5", "http", "8080x", "0x50", "1e3"],
  ],
  "an integer": [
    env.integer("milliseconds", MS),
    [["1", 1], ["10", 10], ["+5", 5]],
    ["0", "11", "-1", "1.0", "five", "Infinity", "NaN"],
  ],
  "a share": [
    env.share(),
    [["0", 0], ["0.05", 0.05], [".5", 0.5], ["1", 1]],
    ["-0.1", "1.1", "5%", "1e-3", "."],
  ],
  "a list": [
    env.list("words", WORD),
    [["a", ["a"]], [" a , b,,c ", ["a", "b", "c"]]],
    ["a b", "a,*", ","],
  ],
  "a URL": [
    env.url(["http:", "https:"]),
    [same("http://a"), same("https://a.b:8080/v1/")],
    ["a", "ftp://a", "http://", "//a", "http:a b"],
  ],
  "URLs": [
    env.secretUrls(["nats:"]),
    [["nats://a, nats://b", ["nats://a", "nats://b"]]],
    ["http://a", "nats://a,b", ","],
  ],
  "a path": [env.path(), [same("/a b/c"), same("c")], ["a\0b"]],
  "a text": [env.text(), [same("a b")], ["a\nb", "a\u001bb"]],
};

for (const [kind, [variable, accepted, refused]] of Object.entries(KINDS)) {
  Deno.test(`parseEnv() reads ${kind}`, () => {
    for (const [text, value] of accepted) {
      assert.deepEqual(valueOf(variable, text), value, text);
    }
    for (const text of refused) {
      assert.match(mistakeOf({ IT: variable }, { IT: text }), /expected /);
    }
  });
}

Deno.test("parseEnv() takes the default of what is absent or empty, and freezes", () => {
  const variables = {
    PORT: env.port().default(8080),
    LEVEL: env.choice(["debug", "info"]).default("info"),
    FILE: env.path().optional(),
  };
  for (const environment of [{}, { PORT: "" }, { PORT: "  ", FILE: " " }]) {
    const config = env.parseEnv(variables, environment, NO_FILES);
    const port: number = config.PORT;
    const level: "debug" | "info" = config.LEVEL;
    const file: string | undefined = config.FILE;
    assert.deepEqual([port, level, file], [8080, "info", undefined]);
    assert.ok(Object.isFrozen(config));
  }
});

Deno.test("parseEnv() names all mistakes at once", () => {
  const message = mistakeOf({
    PORT: env.port().describe("Where clients connect"),
    REDIS_URL: env.url(["redis:", "rediss:"]).describe("The key store"),
    LOG_LEVEL: env.choice(["debug", "info"]).default("info")
      .describe("Lines below it are dropped"),
    FINE: env.path().describe("Nothing wrong"),
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
    A: env.secretUrls(["nats:"]),
    B: env.hidden(env.url(["redis:"])),
    C: env.url(["redis:"]),
    D: env.hidden(env.url(["redis:"])),
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
  const message = mistakeOf({ IT: env.port() }, {
    IT: `\u001b[31m${"x".repeat(9_999)}`,
  });
  assert.ok(message.length < 300);
  assert.ok(!message.includes("\u001b"));
});

Deno.test("parseEnv() reads a secret from the file that _FILE names", () => {
  const variables = {
    IT: env.secret(),
    URL: env.hidden(env.url(["redis:"])).optional(),
    CA_FILE: env.file().optional(),
    PLAIN: env.path().default("default"),
  };
  const files = new Map([["/s", "abc\n"], ["/u", "redis://:x@h"], ["/e", ""]]);
  const readFile = (path: string) => files.get(path) ?? NO_FILES(path);
  const environment = {
    IT_FILE: "/s",
    URL_FILE: "/u",
    CA_FILE: "/s",
    PLAIN_FILE: "/s",
  };
  assert.deepEqual({ ...env.parseEnv(variables, environment, readFile) }, {
    IT: "abc",
    URL: "redis://:x@h",
    CA_FILE: "abc",
    PLAIN: "default",
  });
  const rows: [env.Env, RegExp][] = [
    [{ IT: "a", IT_FILE: "/s" }, /IT and IT_FILE are both set/],
    [{ IT_FILE: "/x" }, /IT_FILE="\/x"\n\s+cannot read it: no file \/x/],
    [{ IT_FILE: "/e" }, /IT_FILE="\/e"\n\s+the file is empty/],
    [{ IT: "a", CA_FILE: "/x" }, /CA_FILE="\/x"\n\s+cannot read it: no file/],
  ];
  for (const [environment, message] of rows) {
    assert.match(mistakeOf(variables, environment, readFile), message);
  }
});

Deno.test("a changing secret is read again, and the last one is kept", () => {
  const variables = { IT: env.changingSecret() };
  let content: string | null = "first\n";
  const readFile = (path: string) => content ?? NO_FILES(path);
  const { IT } = env.parseEnv(variables, { IT_FILE: "/s" }, readFile);
  const values = ["first\n", "second\n", "\n", null, "third"].map((text) => {
    content = text;
    return IT();
  });
  assert.deepEqual(values, ["first", "second", "second", "second", "third"]);
  assert.equal(valueOf(env.changingSecret(), "fixed")(), "fixed");
});
