/** Whom a request names as its end user. */
import assert from "node:assert/strict";
import { endUserNames } from "./end_user.ts";

const ID = "0f8fad5b-d9cb-469f-a165-70867728950e";

Deno.test("endUserNames() reads a header, the user of each dialect, or the session of an agent", () => {
  const cases = [
    { source: "header:x-id", headers: { "x-id": "a" }, name: "a" },
    { source: "header:x-id", headers: {}, body: { user: "a" }, name: "" },
    { source: "header:x-id", headers: { "x-id": ["a", "b"] }, name: "" },
    { source: "user", body: { user: "a", safety_identifier: "b" }, name: "a" },
    { source: "user", body: { safety_identifier: "b" }, name: "b" },
    { source: "user", body: { metadata: { user_id: "c" } }, name: "c" },
    { source: "user", body: { user: 1, metadata: "c" }, name: "" },
    { source: "user", body: "text", headers: { "x-id": "a" }, name: "" },
    {
      source: "session",
      headers: { "x-claude-code-session-id": "a", session_id: "b" },
      body: { prompt_cache_key: "c" },
      name: "a",
    },
    { source: "session", headers: { session_id: "b" }, name: "b" },
    { source: "session", body: { prompt_cache_key: "c" }, name: "c" },
    {
      source: "session",
      body: { metadata: { user_id: `user_1_account_2_session_${ID}` } },
      name: ID,
    },
    {
      source: "session",
      body: { metadata: { user_id: `{"session_id":"${ID}"}` } },
      name: ID,
    },
    { source: "session", body: { user: "a", metadata: null }, name: "" },
  ];
  for (const { source, headers = {}, body = {}, name } of cases) {
    const read = endUserNames({ headers, body });
    assert.equal(read(source), name, JSON.stringify({ source, headers, body }));
  }
});
