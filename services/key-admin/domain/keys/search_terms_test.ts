import assert from "node:assert/strict";
import { type KeyRecord, UNLIMITED } from "@gateway/shared/keys/record";
import { indexMembersOf, wordsOf } from "./search_terms.ts";

const KEY: KeyRecord = {
  id: "key_AAAAAAAAAAAAAAAAAAAA",
  ownerId: "own_AAAAAAAAAAAAAAAAAAAA",
  state: "enabled",
  description: "Prod API",
  hint: "sk-Cg…x4Zq",
  hash: "",
  scopes: [],
  models: [],
  limits: UNLIMITED,
  createdAtMs: 1_795_000_000_000,
  expiresAtMs: null,
  version: 1,
};

Deno.test("wordsOf() splits text as people see words", async (t) => {
  const cases: [text: string, words: string[]][] = [
    ["Prod API_v2", ["api", "prod", "v2"]],
    ["prod prod PROD", ["prod"]],
    ["a/b:c *?[x]", ["a", "b", "c", "x"]],
    ["用户聊天", ["用户", "聊天"]],
    ["CAFE\u0301 ﬁx", ["café", "fix"]],
    ["🔑 - …", []],
    ["x".repeat(40), ["x".repeat(24)]],
    ["", []],
  ];
  for (const [text, words] of cases) {
    await t.step(JSON.stringify(text), () => {
      assert.deepEqual(wordsOf(text).sort(), words.toSorted());
    });
  }
});

Deno.test("indexMembersOf() lists a key under its tags, words and end, newer ones first", () => {
  assert.deepEqual(
    indexMembersOf(KEY).map((member) => member.split("/")[0]),
    [":all", ":enabled", "api", "prod", "x4zq"],
  );
  const off = indexMembersOf({ ...KEY, state: "disabled", expiresAtMs: 1 });
  assert.deepEqual(
    off.map((member) => member.split("/")[0]).slice(0, 3),
    [":all", ":disabled", ":expires"],
  );
  const [older = ""] = indexMembersOf(KEY);
  const [newer = ""] = indexMembersOf({
    ...KEY,
    createdAtMs: KEY.createdAtMs + 1,
  });
  assert.ok(newer < older);
});
