// Promise: a budget that is spent refuses on every route that lets a model work,
// including those that are added later: the routes are read from the code.
import assert from "node:assert/strict";
import { spendKey } from "@gateway/shared/keys/record";
import { parseCatalog } from "@gateway/shared/models/catalog";
import type { ModelKind } from "@gateway/shared/models/kinds";
import type { PriceName } from "@gateway/shared/money/prices";
import { ROUTES } from "../../services/edge-auth/app.ts";
import { callApi } from "../support/chat_request.ts";
import { startGateway } from "../support/gateway/gateway.ts";

const KINDS: readonly { kind: ModelKind; prices: readonly PriceName[] }[] = [
  { kind: "chat", prices: ["input", "output"] },
  { kind: "embedding", prices: ["input"] },
  { kind: "rerank", prices: ["request"] },
  { kind: "image", prices: ["image"] },
  { kind: "speech", prices: ["million_characters"] },
  { kind: "transcription", prices: ["second"] },
  { kind: "video", prices: ["second"] },
];
/** One model of each kind, which has its name, and whose server speaks all dialects. */
const CATALOG = parseCatalog({
  models: KINDS.map(({ kind, prices }) => ({
    id: kind,
    kind,
    prices: Object.fromEntries(prices.map((name) => [name, "1"])),
    backends: [{
      type: "openai",
      base_url: "http://127.0.0.1:9/v1",
      model: "m",
      ...kind === "chat" && {
        speaks: ["chat", "messages", "responses", "compact", "completions"],
      },
    }],
  })),
});

function form(fields: Readonly<Record<string, string | Blob>>): FormData {
  const filled = new FormData();
  for (const [name, value] of Object.entries(fields)) filled.set(name, value);
  return filled;
}

const MESSAGES = [{ role: "user", content: "ping" }];
const PROMPT = { prompt: "a duck" };
const FILE = new Blob([new Uint8Array(64)]);
/** What asks for work, by route. */
const WORK: Readonly<Record<string, () => { path: string; body: object }>> = {
  chat: () => ({
    path: "chat/completions",
    body: { model: "chat", messages: MESSAGES },
  }),
  messages: () => ({
    path: "messages",
    body: { model: "chat", max_tokens: 5, messages: MESSAGES },
  }),
  responses: () => ({
    path: "responses",
    body: { model: "chat", input: "ping" },
  }),
  compact: () => ({
    path: "responses/compact",
    body: { model: "chat", input: "ping" },
  }),
  completions: () => ({
    path: "completions",
    body: { model: "chat", prompt: "ping" },
  }),
  embeddings: () => ({
    path: "embeddings",
    body: { model: "embedding", input: "ping" },
  }),
  rerank: () => ({
    path: "rerank",
    body: { model: "rerank", query: "ping", documents: ["pong"] },
  }),
  speech: () => ({
    path: "audio/speech",
    body: { model: "speech", input: "ping", voice: "alloy" },
  }),
  image: () => ({
    path: "images/generations",
    body: { model: "image", ...PROMPT },
  }),
  image_edit: () => ({
    path: "images/edits",
    body: form({ model: "image", ...PROMPT, image: FILE }),
  }),
  transcription: () => ({
    path: "audio/transcriptions",
    body: form({ model: "transcription", file: FILE }),
  }),
  translation: () => ({
    path: "audio/translations",
    body: form({ model: "transcription", file: FILE }),
  }),
  video: () => ({ path: "videos", body: { model: "video", ...PROMPT } }),
};
/** What lets no model work, or asks for work on something that must exist. */
const OTHERS = ["count_tokens", "input_tokens", "response", "video_remix"];

Deno.test("every route on which a model works has a request here", () => {
  const posts = ROUTES.filter(({ handlers }) => "POST" in handlers)
    .map(({ name }) => name);
  assert.deepEqual(posts.sort(), [...Object.keys(WORK), ...OTHERS].sort());
});

Deno.test("a budget that is spent refuses on every route on which a model works", async (t) => {
  await using gateway = await startGateway("limited", {
    door: { catalog: CATALOG },
  });
  for (const [route, request] of Object.entries(WORK)) {
    await t.step(route, async () => {
      // A new one: an edge remembers for a while which key was refused.
      const key = await gateway.addKey({
        limits: { budgetTotal: 5 },
        scopes: "chat,models,image,video,speech,embedding",
      });
      await gateway.world.command("HSET", spendKey(key, "total"), "s", "5");
      const { path, body } = request();
      const url = `${gateway.baseUrl()}/${path}`;
      const response = await callApi(url, key.value, { body });
      const text = await response.text();
      assert.equal(response.status, 429, text);
      assert.match(text, /insufficient_quota|billing_error/);
      assert.equal(response.headers.get("x-should-retry"), "false");
    });
  }
  assert.equal(gateway.edge.admissions, 0);
});
