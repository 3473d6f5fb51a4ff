/** The list of models, and mistakes in it. */
import assert from "node:assert/strict";
import { ConfigError } from "../process/env.ts";
import { DEFAULT_MODEL_ID, parseCatalog } from "./catalog.ts";
import { QUEUE_DEFAULT } from "./queue.ts";
import { DIALECTS } from "./dialects.ts";

const openai = { type: "openai", base_url: "http://a/v1", model: "m" };
const minimal = { id: "m", backends: [openai] };

function mistakesOf(file: unknown): readonly string[] {
  try {
    parseCatalog(file);
  } catch (error) {
    if (error instanceof ConfigError) return error.mistakes;
    throw error;
  }
  throw new Error("accepted");
}

Deno.test("parseCatalog() fills in the defaults", () => {
  const catalog = parseCatalog({
    models: [minimal, { id: "s", backends: [openai, openai] }],
  });
  assert.deepEqual(catalog.get("m"), {
    id: "m",
    aliases: [],
    affinity: "none",
    queue: QUEUE_DEFAULT,
    kind: "chat",
    owned_by: "gateway",
    created: 1_767_225_600,
    accepts: new Set(),
    fetches_urls: false,
    refuse_fields: [],
    only_known_fields: false,
    stateful: false,
    states_media: false,
    backends: [{
      ...openai,
      name: "openai-1",
      weight: 1,
      preference: 0,
      headers: {},
      deadlines: {
        connect_ms: 5_000,
        first_token_ms: 300_000,
        between_tokens_ms: 120_000,
        total_ms: 600_000,
      },
      dialect: DIALECTS.dashscope,
      dialect_name: "dashscope",
      bounds: { requests: undefined, tokens: undefined, inFlight: undefined },
      keys: [],
      limits_of: "model",
      drop_tool_types: [],
      forward_paths: [],
    }],
  });
  assert.equal(catalog.get("s")?.backends[1]?.name, "openai-2");
});

Deno.test("parseCatalog() keeps what is given, and overrides members of a dialect", () => {
  const dialect = { repetition_penalty_field: "none" } as const;
  const file = {
    ...openai,
    name: "a.b",
    api_key_env: "KEY",
    headers: { "X-Team": "a b" },
  };
  const model = {
    id: "org/model:7b@2+x",
    context_tokens: 10,
    output_tokens: 10,
    choices: 1,
    vision: true,
    pass_fields: ["top_k", "min_p"],
  };
  const catalog = parseCatalog({
    models: [{
      ...model,
      backends: [{
        ...file,
        base_url: "https://a.b:8443/x/v1//",
        deadlines: { total_ms: 1 },
        dialect: "llama.cpp",
        ...dialect,
      }],
    }],
  });
  assert.partialDeepStrictEqual(catalog.get(model.id), {
    ...model,
    backends: [{
      ...file,
      base_url: "https://a.b:8443/x/v1",
      deadlines: { connect_ms: 5_000, total_ms: 1 },
      dialect: { ...DIALECTS["llama.cpp"], ...dialect },
    }],
  });
});

Deno.test("parseCatalog() knows the keys of a server and what bounds each", () => {
  const catalog = parseCatalog({
    models: [{
      id: "m",
      backends: [{
        ...openai,
        api_key_envs: ["A", "B"],
        concurrency: 9,
        key_limits: {
          "*": { requests_per_minute: 60, tokens_per_minute: 7 },
          B: { concurrency: 2 },
        },
      }, { ...openai, api_key_env: "C" }],
    }],
  });
  const [pool, single] = catalog.get("m")?.backends ?? [];
  const none = { requests: undefined, tokens: undefined, inFlight: undefined };
  assert.deepEqual(pool?.bounds, { ...none, inFlight: 9 });
  assert.deepEqual(pool.keys, [
    { variable: "A", bounds: { ...none, requests: 60, tokens: 7 } },
    { variable: "B", bounds: { ...none, inFlight: 2 } },
  ]);
  assert.deepEqual(single?.keys, [{ variable: "C", bounds: none }]);
});

const model = (fields: object) => ({ models: [{ ...minimal, ...fields }] });
const backend = (fields: object) =>
  model({ backends: [{ ...openai, ...fields }] });

/** Files with one mistake, and how its line begins. */
const WRONG: [file: unknown, mistake: string][] = [
  [null, "the file: expected an object, got null"],
  [[], "the file: expected an object, got an array"],
  [{}, "models: expected at least 1 element"],
  [{ models: [] }, "models: expected at least 1 element"],
  [
    { models: [minimal], modles: [] },
    "the file: unknown member 'modles', did you mean 'models'?",
  ],
  [{ models: [minimal, minimal] }, "models[1].id: another model is called 'm'"],
];

const NAME = { ...openai, name: "a" };
/** Fields of a model or a backend, and the mistake in it. */
type Row = [fields: object, mistake: string];
const NO_IDS = ["", "a b", "x.>", "-m"];
const NO_FIELD_NAMES = ["__proto__", "a b"];
const NO_BASE_URLS = [
  "a",
  "ftp://a",
  "http://user:pw@a",
  "http://a/v1?x=1",
  "http://a/v1#x",
];
const SERVER_LIMITS = [
  "requests_per_minute",
  "tokens_per_minute",
  "concurrency",
];
const WRONG_MODEL: Row[] = [
  [{ id: undefined }, ".id: missing"],
  ...NO_IDS.map((id): Row => [{ id }, ".id: expected letters"]),
  [{ id: "m".repeat(201) }, ".id: expected at most 200 characters"],
  [
    { kind: "chta" },
    ".kind: expected 'chat', 'image', 'speech', 'transcription', 'video', 'embedding', or 'rerank', did you mean 'chat'?",
  ],
  [
    { kind: "image", context_tokens: 1 },
    '.context_tokens: only for models of the kind "chat", "embedding", or "rerank"',
  ],
  [{ kind: "image", choices: 1 }, '.choices: only for models of the kind "ch'],
  [{ kind: "speech", vision: false }, ".vision: only for models of the kind"],
  [{ kind: "video", pass_fields: [] }, ".pass_fields: only for models of the"],
  [
    { kind: "speech", prompt_characters: 5 },
    '.prompt_characters: only for models of the kind "image" or "video"',
  ],
  [{ file_bytes: 5 }, '.file_bytes: only for models of the kind "image", "tr'],
  ...Object.entries({
    developer_role: true,
    stream_format_field: "stream_format",
  }).map(([name, value]): Row => [
    { kind: "image", backends: [{ ...openai, [name]: value }] },
    `.backends[0].${name}: only for models of the kind "`,
  ]),
  [{ context_tokens: 1.5 }, ".context_tokens: expected an integer, got a dec"],
  [{ context_tokens: 5, output_tokens: 6 }, ".output_tokens: larger than cont"],
  [{ choices: 9 }, ".choices: expected a value <= 8"],
  [{ vision: "yes" }, ".vision: expected a boolean, got a string"],
  [{ visoin: true }, ": unknown member 'visoin', did you mean 'vision'?"],
  ...NO_FIELD_NAMES.map((name): Row => [
    { pass_fields: [name] },
    ".pass_fields[0]: expected the name of a request",
  ]),
  [{ backends: [] }, ".backends: expected at least 1 element"],
  [{ backends: [NAME, NAME] }, ".backends[1].name: another backend of this m"],
  [
    { backends: [{ ...openai, name: "openai-2" }, openai] },
    ".backends[1].name: another backend of this model is called 'openai-2' too",
  ],
];

const WRONG_BACKEND: Row[] = [
  [
    { image_format_field: "none" },
    '.image_format_field: only for models of the kind "image"',
  ],
  [{ type: "anthropic" }, ".type: expected 'openai'"],
  [
    { dialect: "olama" },
    ".dialect: expected 'dashscope', 'vllm', 'sglang', 'llama.cpp', 'ollama', 'lmstudio', 'openai', or 'anthropic', did you mean 'ollama'?",
  ],
  [
    { api_key: "sk-abc" },
    ": unknown member 'api_key': put the key in an environment variable of the worker and name that variable in api_key_env",
  ],
  ...NO_BASE_URLS.map((
    base_url,
  ): Row => [{ base_url }, ".base_url: expected a URL that be"]),
  [
    { api_key_env: "sk-abc" },
    ".api_key_env: expected the name of an environment variable, not the key: put the key in an environment variable",
  ],
  [{ api_key_envs: [] }, ".api_key_envs: expected at least 1 element"],
  [
    { api_key_envs: ["A", "sk-abc"] },
    ".api_key_envs[1]: expected the name of an environment variable, not the key",
  ],
  [
    { api_key_envs: ["A", "B", "A"] },
    ".api_key_envs[2]: 'A' is in the list twice",
  ],
  [
    { api_key_env: "A", api_key_envs: ["B"] },
    ".api_key_envs: use api_key_env or api_key_envs, not both",
  ],
  ...SERVER_LIMITS.flatMap((name): Row[] => [
    [{ [name]: 0 }, `.${name}: expected a value >= 1`],
    [{ [name]: 1.5 }, `.${name}: expected an integer, got a dec`],
    [
      { api_key_env: "A", key_limits: { A: { [name]: 0 } } },
      `.key_limits.A.${name}: expected a value >= 1`,
    ],
  ]),
  [
    { api_key_envs: ["KEY_ONE", "B"], key_limits: { KEY_OEN: {} } },
    ".key_limits.KEY_OEN: 'KEY_OEN' is no key of this server, did you mean 'KEY_ONE'?",
  ],
  [
    { key_limits: { "*": { concurrency: 1 } } },
    ".key_limits: '*' is no key of this server, which has none",
  ],
  [
    { api_key_env: "A", key_limits: { "a b": {} } },
    ".key_limits: expected the name of a variable with a key, or '*'",
  ],
  [
    { api_key_env: "A", key_limits: { A: { requests_per_minut: 1 } } },
    ".key_limits.A: unknown member 'requests_per_minut', did you mean 'requests_per_minute'?",
  ],
  [{ model: "" }, ".model: expected at least 1 character"],
  [{ weight: 0 }, ".weight: expected a value >= 1"],
  [{ preference: -1 }, ".preference: expected a value >= 0"],
  [{ name: "a b" }, ".name: expected 1 to 64 letters"],
  [{ headers: { "a b": "x" } }, ".headers: expected the name of a header"],
  [{ headers: { a: "x\r\ny" } }, ".headers.a: expected printable ASCII"],
  [
    { headers: { Authorization: "x" } },
    ".headers.Authorization: the gateway sets this header itself: remove it, or, for a key, put the key",
  ],
  [
    { deadlines: { total_ms: 86_400_001 } },
    ".deadlines.total_ms: expected a value <= 86400000",
  ],
  [
    { deadlines: { connect: 5 } },
    ".deadlines: unknown member 'connect', did you mean 'connect_ms'?",
  ],
];

Deno.test("parseCatalog() refuses mistakes and says where they are", () => {
  const rows: [unknown, string][] = [
    ...WRONG,
    ...WRONG_MODEL.map(([fields, mistake]): [unknown, string] => [
      model(fields),
      `models[0]${mistake}`,
    ]),
    ...WRONG_BACKEND.map(([fields, mistake]): [unknown, string] => [
      backend(fields),
      `models[0].backends[0]${mistake}`,
    ]),
  ];
  for (const [file, expected] of rows) {
    const mistakes = mistakesOf(file);
    assert.equal(mistakes.length, 1, mistakes.join("\n"));
    assert.ok(mistakes[0]?.startsWith(expected), `${mistakes}: ${expected}`);
  }
});

Deno.test("parseCatalog() reports all mistakes at once, and never a value that may be a secret", () => {
  const mistakes = mistakesOf(backend({
    api_key_env: "sk-hunter2",
    base_url: "http://u:hunter2@a",
    headers: { "x-key": "hunter2\n" },
  }));
  assert.equal(mistakes.length, 3);
  assert.ok(!mistakes.join().includes("hunter2"));
});

Deno.test("the schema of the example is found from where the example is copied", async () => {
  const deploy = new URL("../../deploy/", import.meta.url);
  const text = await Deno.readTextFile(new URL("models.example.json", deploy));
  const copy = new URL("models/models.json", deploy);
  const schema = new URL(JSON.parse(text).$schema, copy);
  assert.equal(schema.href, new URL("models.schema.json", deploy).href);
});

Deno.test("deploy/models.example.json is a good file", async () => {
  const url = new URL("../../deploy/models.example.json", import.meta.url);
  const catalog = parseCatalog(JSON.parse(await Deno.readTextFile(url)));
  assert.ok(catalog.has(DEFAULT_MODEL_ID));
});

Deno.test("whoever holds a catalog sees its replacement, but for snapshots", () => {
  const backends = [{
    type: "openai" as const,
    base_url: "http://a/v1",
    model: "m",
  }];
  const fileOf = (id: string, servers: object[] = []) =>
    parseCatalog({
      models: [{ id, aliases: [`${id}-alias`], backends }],
      servers,
    }).file;
  const catalog = parseCatalog({ models: [{ id: "old", backends }] });
  const { revision } = catalog;
  const old = catalog.snapshot();
  const servers = ["one", "two"].map((name) => (
    { type: "openai", name, base_url: "http://b/v1" }
  ));
  catalog.replace(fileOf("new", servers));
  assert.notEqual(catalog.revision, revision);
  assert.deepEqual([...catalog.keys()], ["new"]);
  assert.equal(catalog.find("new-alias")?.id, "new");
  assert.equal(catalog.find("old"), undefined);
  assert.equal(old.find("old")?.id, "old");
  assert.equal(catalog.isPending, true);
  catalog.list({ one: ["m1", "new-alias"], two: ["m2"] }, new Set(["m2"]));
  assert.deepEqual([...catalog.keys()], ["new", "m1", "m2"]);
  assert.equal(catalog.isPending, false);
  // What servers list stays, as far as they do.
  const listed = catalog.snapshot();
  catalog.replace(fileOf("newer", servers.slice(1)));
  assert.deepEqual([...catalog.keys()], ["newer", "m2"]);
  assert.equal(catalog.isAway("m2"), true);
  assert.deepEqual([...listed.keys()], ["new", "m1", "m2"]);
  assert.equal(listed.isAway("m2"), true);
});

Deno.test("a model that is disabled is found by no name until it is enabled", () => {
  const catalog = parseCatalog({
    models: [{
      id: "m",
      aliases: ["a", "b-*"],
      backends: [{ type: "openai", base_url: "http://x/v1", model: "x" }],
    }],
  });
  const found = () =>
    ["m", "a", "b-1"].map((name) => catalog.find(name)?.id ?? "");
  catalog.disable(new Set(["m"]));
  assert.deepEqual(found(), ["", "", ""]);
  assert.ok(catalog.isDisabled("m") && catalog.snapshot().isDisabled("m"));
  // What runs already still finds what it needs.
  assert.equal(catalog.get("m")?.id, "m");
  catalog.disable(new Set());
  assert.deepEqual(found(), ["m", "m", "m"]);
});
