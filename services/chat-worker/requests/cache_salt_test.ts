/** Salts that separate the caches of accounts. */
import assert from "node:assert/strict";
import { createCacheSalt } from "./cache_salt.ts";

Deno.test("createCacheSalt() gives each account a salt of its own, which does not contain it", () => {
  const saltOf = createCacheSalt("key");
  assert.equal(saltOf("account-1"), createCacheSalt("key")("account-1"));
  assert.notEqual(saltOf("account-1"), saltOf("account-2"));
  assert.match(saltOf("account-1"), /^[\w-]{43}$/);
  assert.notEqual(saltOf("account-1"), createCacheSalt("else")("account-1"));
});

Deno.test("createCacheSalt() without a key makes salts that nobody can make again", () => {
  const saltOf = createCacheSalt(null);
  assert.equal(saltOf("a"), saltOf("a"));
  assert.notEqual(saltOf("a"), createCacheSalt(null)("a"));
});
