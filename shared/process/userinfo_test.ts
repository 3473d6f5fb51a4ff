import assert from "node:assert/strict";
import { hideUserinfo } from "./userinfo.ts";

Deno.test("hideUserinfo() hides all of it, and nothing else", () => {
  const cases: [string, string][] = [
    ["redis://host:6379/0", "redis://host:6379/0"],
    ["redis://user:secret@host", "redis://***@host"],
    ["redis://u:a,b@host", "redis://***@host"],
    ["redis://u:p@w@host/0", "redis://***@host/0"],
    ["nats://a:b@one, nats://c:d@two", "nats://***@one, nats://***@two"],
    ["http://host/@name", "http://host/@name"],
  ];
  for (const [text, shown] of cases) assert.equal(hideUserinfo(text), shown);
});
