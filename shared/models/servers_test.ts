/** Servers whose models are offered under their own names. */
import assert from "node:assert/strict";
import { ConfigError } from "../process/env.ts";
import { parseCatalog } from "./catalog.ts";
import { idOf, kindIn } from "./servers.ts";

const server = (fields: object = {}) => (
  { type: "openai", name: "ollama", base_url: "http://a/v1", ...fields }
);
const catalogOf = (...servers: object[]) => parseCatalog({ servers });

const KINDS: [name: string, kind: string | null][] = [
  ["llama3.2:latest", "chat"],
  ["qwen/qwen3-32b", "chat"],
  ["nomic-embed-text", "embedding"],
  ["text-embedding-3-small", "embedding"],
  ["BAAI/bge-m3", "embedding"],
  ["BAAI/bge-reranker-v2-m3", "rerank"],
  ["whisper-1", "transcription"],
  ["gpt-4o-transcribe", "transcription"],
  ["kokoro", "speech"],
  ["tts-1-hd", "speech"],
  ["black-forest/flux-dev", "image"],
  ["sora-2", "video"],
  ["bigger-model", "chat"],
  // As the file says.
  ["mine", "embedding"],
  ["mine-too", "rerank"],
  ["secret-1", null],
  ["secret-but-fine", "chat"],
];

Deno.test("kindIn() follows the file, then well-known names", () => {
  const kinds = {
    mine: "embedding",
    "mine-*": "rerank",
    "secret-*": "none",
    "secret-but*": "chat",
  };
  const [config] = catalogOf(server({ kinds })).servers;
  assert.ok(config !== undefined);
  for (const [name, kind] of KINDS) {
    assert.equal(kindIn(config, name), kind, name);
  }
});

Deno.test("idOf() takes names with slashes and colons, and leaves out what needs quoting", () => {
  const idWith = (prefix: string, name: string) => idOf({ prefix }, name);
  assert.equal(idWith("", "org/model:7b@2+x"), "org/model:7b@2+x");
  assert.equal(idWith("local/", "llama3"), "local/llama3");
  const bad = ["", "a b", "a\n", "a*", "é", "../a", "/a", "a".repeat(201)];
  assert.deepEqual(bad.filter((name) => idWith("", name) !== null), []);
  assert.equal(idWith("a".repeat(64), "b".repeat(137)), null);
});

Deno.test("models that two servers list have both, and names of the file come first", () => {
  const catalog = parseCatalog({
    models: [{
      id: "fixed",
      aliases: ["gpt-4o", "llama*"],
      backends: [{ type: "openai", base_url: "http://f/v1", model: "m" }],
    }],
    servers: [
      server({ forward_paths: ["/tokenize"] }),
      server({
        name: "vllm",
        base_url: "https://b/v1",
        discover: { prefix: "v/" },
      }),
      server({ name: "third", base_url: "http://c/v1", dialect: "vllm" }),
    ],
  });
  assert.ok(catalog.isPending);
  catalog.list({
    ollama: ["fixed", "gpt-4o", "llama3", "both"],
    vllm: ["v/both"],
    third: ["both", "bge-m3"],
    unknown: ["x"],
  }, new Set(["llama3"]));
  assert.ok(!catalog.isPending);
  assert.deepEqual([...catalog.keys()], [
    "fixed",
    "llama3",
    "both",
    "v/both",
    "bge-m3",
  ]);
  assert.equal(catalog.find("gpt-4o")?.id, "fixed");
  // An id counts before the beginning of names.
  assert.equal(catalog.find("llama3")?.id, "llama3");
  assert.equal(catalog.find("llama4")?.id, "fixed");
  const backendsOf = (id: string) =>
    catalog.get(id)?.backends.map(({ name, model }) => `${name} ${model}`);
  assert.deepEqual(backendsOf("both"), ["ollama both", "third both"]);
  assert.deepEqual(backendsOf("v/both"), ["vllm both"]);
  assert.equal(catalog.get("both")?.affinity, "session");
  assert.equal(catalog.get("bge-m3")?.kind, "embedding");
  assert.ok(catalog.isAway("llama3") && !catalog.isAway("both"));
  catalog.list({ third: ["both"] });
  assert.deepEqual([...catalog.keys()], ["fixed", "both"]);
  assert.deepEqual(backendsOf("both"), ["third both"]);
});

const WRONG: [file: object, mistake: RegExp][] = [
  [{}, /^models: expected at least 1 element/],
  [{ servers: [server({ name: undefined })] }, /^servers\[0\]\.name: missing/],
  [
    { servers: [server(), server()] },
    /^servers\[1\]\.name: another server is called 'ollama' too/,
  ],
  [
    { servers: [server({ model: "m" })] },
    /^servers\[0\]: unknown member 'model'/,
  ],
  [
    { servers: [server({ discover: { every_seconds: 0 } })] },
    /every_seconds: expected/,
  ],
  [
    { servers: [server({ discover: { prefix: "a b" } })] },
    /prefix: expected up to 64 letters/,
  ],
  [{ servers: [server({ kinds: { a: "chta" } })] }, /did you mean 'chat'/],
  [
    { servers: [server({ kinds: { "a*b": "chat" } })] },
    /expected a name, or the beginning of names/,
  ],
];

for (const [file, mistake] of WRONG) {
  Deno.test(`parseCatalog() refuses servers: ${mistake.source.slice(0, 50)}`, () => {
    assert.throws(() => parseCatalog(file), (error) => {
      assert.ok(error instanceof ConfigError);
      assert.match(error.mistakes.join("\n"), mistake);
      return true;
    });
  });
}
