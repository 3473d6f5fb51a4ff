import assert from "node:assert/strict";
import { ConfigError } from "../process/env.ts";
import {
  type Catalog,
  catalogJsonSchema,
  DEFAULT_MODEL_ID,
  parseCatalog,
} from "./catalog.ts";
import { DIALECT_DEFAULT, DIALECT_NAMES, DIALECTS } from "./dialects.ts";

const DEPLOY = new URL("../../deploy/", import.meta.url);

const openai = { type: "openai", base_url: "http://a/v1", model: "m" };
const minimal = { id: "m", backends: [openai] };

function mistakesOf(act: () => Catalog): readonly string[] {
  try {
    act();
  } catch (error) {
    if (error instanceof ConfigError) return error.mistakes;
    throw error;
  }
  throw new Error("accepted");
}

Deno.test("parseCatalog() fills in the defaults", () => {
  const catalog = parseCatalog({
    models: [
      minimal,
      { id: "s", backends: [openai, openai] },
    ],
  });
  assert.deepEqual([...catalog.keys()], ["m", "s"]);
  assert.deepEqual(catalog.get("m"), {
    id: "m",
    kind: "chat",
    ownedBy: "gateway",
    created: 1_767_225_600,
    vision: false,
    passFields: [],
    backends: [{
      type: "openai",
      name: "openai-1",
      baseUrl: "http://a/v1",
      model: "m",
      weight: 1,
      preference: 0,
      headers: {},
      deadlines: {
        connectMs: 5_000,
        firstTokenMs: 60_000,
        betweenTokensMs: 30_000,
        totalMs: 600_000,
      },
      dialect: DIALECTS.dashscope,
    }],
  });
  assert.equal(catalog.get("s")?.backends[1]?.name, "openai-2");
});

Deno.test("parseCatalog() keeps what is said", () => {
  const catalog = parseCatalog({
    models: [{
      id: "org/model:7b@2+x",
      owned_by: "us",
      created: 7,
      context_tokens: 10,
      output_tokens: 10,
      choices: 1,
      vision: true,
      pass_fields: ["top_k", "min_p", "top_k"],
      backends: [{
        ...openai,
        name: "a.b",
        base_url: "https://a.b:8443/x/v1//",
        api_key_env: "KEY",
        weight: 3,
        preference: 2,
        headers: { "X-Team": "a b" },
        deadlines: { total_ms: 1 },
        dialect: "llama.cpp",
        repetition_penalty_field: "none",
        choices_per_request: "many",
      }],
    }],
  });
  assert.deepEqual(catalog.get("org/model:7b@2+x"), {
    id: "org/model:7b@2+x",
    kind: "chat",
    ownedBy: "us",
    created: 7,
    contextTokensMax: 10,
    outputTokensMax: 10,
    choicesMax: 1,
    vision: true,
    passFields: ["top_k", "min_p"],
    backends: [{
      type: "openai",
      name: "a.b",
      baseUrl: "https://a.b:8443/x/v1",
      apiKeyEnv: "KEY",
      model: "m",
      weight: 3,
      preference: 2,
      headers: { "X-Team": "a b" },
      deadlines: {
        connectMs: 5_000,
        firstTokenMs: 60_000,
        betweenTokensMs: 30_000,
        totalMs: 1,
      },
      dialect: {
        ...DIALECTS["llama.cpp"],
        repetition_penalty_field: "none",
        choices_per_request: "many",
      },
    }],
  });
});

const model = (fields: object) => ({ models: [{ ...minimal, ...fields }] });
const backend = (fields: object) =>
  model({ backends: [{ ...openai, ...fields }] });
const AT = "models[0]";
const BACKEND = "models[0].backends[0]";

const WRONG: [file: unknown, mistake: string | RegExp][] = [
  [null, "the file: expected object, received null"],
  [[], /^the file: expected object/],
  [{}, "models: missing"],
  [{ models: [] }, /^models: Too small/],
  [{ models: [7] }, "models[0]: expected object, received number"],
  [{ models: [minimal], modles: [] }, "the file: unknown member 'modles'"],
  [model({ id: undefined }), `${AT}.id: missing`],
  [model({ id: "" }), /^models\[0\]\.id: expected letters/],
  [model({ id: "a b" }), /^models\[0\]\.id: expected letters/],
  [model({ id: "x.>" }), /^models\[0\]\.id: expected letters/],
  [model({ id: "-m" }), /^models\[0\]\.id: expected letters/],
  [model({ id: "m".repeat(201) }), /^models\[0\]\.id: Too big/],
  [model({ kind: "image" }), /^models\[0\]\.kind: expected "chat"/],
  [model({ context_tokens: 0 }), /^models\[0\]\.context_tokens: Too small/],
  [model({ context_tokens: 1.5 }), /\.context_tokens: expected int/],
  [
    model({ context_tokens: 5, output_tokens: 6 }),
    `${AT}.output_tokens: larger than context_tokens`,
  ],
  [model({ choices: 0 }), /^models\[0\]\.choices: Too small/],
  [model({ choices: 9 }), /^models\[0\]\.choices: Too big/],
  [model({ vision: "yes" }), /^models\[0\]\.vision: expected boolean/],
  [model({ visoin: true }), `${AT}: unknown member 'visoin'`],
  [
    model({ pass_fields: ["__proto__"] }),
    /^models\[0\]\.pass_fields\[0\]: expected the name/,
  ],
  [model({ pass_fields: ["a b"] }), /expected the name of a request field/],
  [model({ backends: [] }), /^models\[0\]\.backends: Too small/],
  [model({ backends: undefined }), `${AT}.backends: missing`],
  [backend({ type: "anthropic" }), `${BACKEND}.type: expected "openai"`],
  [backend({ type: undefined }), `${BACKEND}.type: missing`],
  [backend({ base_url: undefined }), `${BACKEND}.base_url: missing`],
  [
    backend({ base_url: "a" }),
    /base_url: expected a URL that begins with http/,
  ],
  [backend({ base_url: "ftp://a" }), /base_url: expected a URL/],
  [backend({ base_url: "http://user:pw@a" }), /base_url: expected a URL/],
  [backend({ base_url: "http://a/v1?x=1" }), /base_url: expected a URL/],
  [backend({ base_url: "http://a/v1#x" }), /base_url: expected a URL/],
  [
    backend({ api_key_env: "sk-abc" }),
    /api_key_env: expected the name of an environment variable, not its value/,
  ],
  [backend({ model: "" }), /\.model: Too small/],
  [backend({ weight: 0 }), /weight: Too small/],
  [backend({ weight: 1.5 }), /weight: expected int/],
  [backend({ preference: -1 }), /preference: Too small/],
  [backend({ name: "a b" }), /name: expected 1 to 64 letters/],
  [
    backend({ headers: { "a b": "x" } }),
    /headers.*: expected the name of a header/,
  ],
  [
    backend({ headers: { a: "x\r\ny" } }),
    /headers\.a: expected printable ASCII/,
  ],
  [
    backend({ headers: { Authorization: "x" } }),
    /headers\.Authorization: the gateway sets this header itself/,
  ],
  [backend({ headers: { a: 1 } }), /headers\.a: expected string/],
  [
    backend({ deadlines: { connect_ms: 0 } }),
    /deadlines\.connect_ms: Too small/,
  ],
  [
    backend({ deadlines: { total_ms: 86_400_001 } }),
    /deadlines\.total_ms: Too big/,
  ],
  [
    backend({ deadlines: { connect: 5 } }),
    /deadlines: unknown member 'connect'/,
  ],
  [
    { models: [minimal, minimal] },
    "models[1].id: another model is called 'm' too",
  ],
  [
    model({ backends: [{ ...openai, name: "a" }, { ...openai, name: "a" }] }),
    /^models\[0\]\.backends\[1\]\.name: another backend of this model is called 'a' too$/,
  ],
  [
    model({ backends: [{ ...openai, name: "openai-2" }, openai] }),
    /is called 'openai-2' too$/,
  ],
];

Deno.test("parseCatalog() refuses mistakes and says where they are", () => {
  for (const [file, expected] of WRONG) {
    const mistakes = mistakesOf(() => parseCatalog(file));
    assert.equal(mistakes.length, 1, mistakes.join("\n"));
    const [mistake = ""] = mistakes;
    if (typeof expected === "string") assert.equal(mistake, expected);
    else assert.match(mistake, expected);
  }
});

Deno.test("parseCatalog() reports all mistakes at once", () => {
  const file = {
    models: [
      { id: "a b", backends: [{ ...openai, base_url: "x", port: 1 }] },
      { id: "a b", backends: [] },
    ],
  };
  assert.throws(() => parseCatalog(file), {
    name: "ConfigError",
    message: `6 mistakes in the models file:
  - models[0].id: expected letters, digits, '.', '_', ':', '/', '@', '+' or '-'
  - models[0].backends[0].base_url: expected a URL that begins with http:// or https://, without user, password, query or fragment
  - models[0].backends[0]: unknown member 'port'
  - models[1].id: expected letters, digits, '.', '_', ':', '/', '@', '+' or '-'
  - models[1].backends: Too small: expected array to have >=1 items
  - models[1].id: another model is called 'a b' too`,
  });
});

Deno.test("parseCatalog() never shows a value that may be a secret", () => {
  const mistakes = mistakesOf(() =>
    parseCatalog(backend({
      api_key_env: "sk-hunter2",
      base_url: "http://u:hunter2@a",
      headers: { "x-key": "hunter2\n" },
    }))
  );
  assert.equal(mistakes.length, 3);
  assert.ok(!mistakes.join().includes("hunter2"));
});

async function readJson(name: string): Promise<unknown> {
  return JSON.parse(await Deno.readTextFile(new URL(name, DEPLOY)));
}

Deno.test("deploy/models.example.json is a good file", async () => {
  const catalog = parseCatalog(await readJson("models.example.json"));
  assert.ok(catalog.has(DEFAULT_MODEL_ID));
});

Deno.test("deploy/models.schema.json is what the code says (else: deno task docs)", async () => {
  assert.deepEqual(await readJson("models.schema.json"), catalogJsonSchema());
});

Deno.test("docs/operating.md has the table of dialects", async () => {
  const page = await Deno.readTextFile(new URL("../docs/operating.md", DEPLOY));
  const rows = page.split("\n").filter((line) => line.startsWith("|"))
    .map((line) => line.split("|").slice(1, -1).map((cell) => cell.trim()));
  const cellsOf = (name: string) =>
    rows.find(([first]) => first?.startsWith(`\`${name}\``))?.slice(1);
  assert.deepEqual(
    cellsOf("dialect"),
    DIALECT_NAMES.map((name) => `\`${name}\``),
  );
  assert.equal(DIALECT_NAMES[0], DIALECT_DEFAULT);
  for (const [member] of Object.entries(DIALECTS.vllm)) {
    assert.deepEqual(
      cellsOf(member),
      DIALECT_NAMES.map((name) =>
        `\`${new Map(Object.entries(DIALECTS[name])).get(member)}\``
      ),
      member,
    );
  }
});
