/** The form of a key: its characters, checksum and hash. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { crc32 } from "node:zlib";
import { seededRandom } from "../../tests/support/seeded_random.ts";
import { randomBytes } from "../process/ids.ts";
import {
  hashKeyValue,
  isAccountId,
  isKeyId,
  isProjectId,
  isWellFormedKey,
  keyHint,
  mintKey,
  mintKeyId,
  mintOwnerId,
  mintProjectId,
  randomBase62,
} from "./key.ts";

const ALPHABET =
  "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const FORM = /^sk-Cg[0-9A-Za-z]{46}$/;

/** The same keys in every run. */
function seeded(seed: number) {
  const random = seededRandom(seed);
  return (length: number) =>
    Uint8Array.from({ length }, () => Math.floor(random() * 256));
}

Deno.test("ASVS 6.5.2, 11.5.1: mintKey() gives 51 characters that isWellFormedKey() accepts", () => {
  const values = new Set<string>();
  for (let round = 0; round < 5_000; round++) {
    const key = mintKey(randomBytes);
    assert.match(key, FORM);
    assert.ok(isWellFormedKey(key), key);
    values.add(key);
  }
  assert.equal(values.size, 5_000);
});

Deno.test("the last six characters are the CRC32 of the rest, most significant first", () => {
  const key = mintKey(seeded(7));
  let stated = 0;
  for (const char of key.slice(45)) {
    stated = stated * 62 + ALPHABET.indexOf(char);
  }
  assert.equal(stated, crc32(key.slice(0, 45)));
});

Deno.test("randomBase62() drops bytes that would favour some characters", () => {
  const rounds = [Uint8Array.of(255, 248, 0, 61), Uint8Array.of(62, 247)];
  const text = randomBase62(4, () => rounds.shift() ?? assert.fail());
  assert.equal(text, "0z0z");
});

Deno.test("isWellFormedKey() refuses every single wrong character", () => {
  const key = mintKey(seeded(11));
  for (let at = 0; at < key.length; at++) {
    for (const char of ALPHABET + "-_é\0 ") {
      if (char === key[at]) continue;
      const wrong = key.slice(0, at) + char + key.slice(at + 1);
      assert.equal(isWellFormedKey(wrong), false, `${at}: ${wrong}`);
    }
  }
});

Deno.test("isWellFormedKey() refuses other shapes", () => {
  const key = mintKey(seeded(19));
  const cases = [
    "",
    key.slice(0, -1),
    key + "0",
    " " + key,
    key + "\n",
    key.replace("Cg", "CG"),
    key.replace("Cg", "ab"),
    key.repeat(1_000),
    key.slice(0, 10) + "Ａ" + key.slice(11), // A full-width letter.
    key.slice(0, 45) + "zzzzzz", // A checksum above 32 bits.
  ];
  for (const value of cases) {
    assert.equal(isWellFormedKey(value), false, value);
  }
});

Deno.test("hashKeyValue() is SHA-256 in base64url, keyHint() begin and end", () => {
  const key = mintKey(seeded(23));
  const expected = createHash("sha256").update(key).digest("base64url");
  assert.equal(hashKeyValue(key), expected);
  assert.equal(keyHint(key), `sk-Cg…${key.slice(-4)}`);
});

Deno.test("ids have their own shape, and only that is taken for one", () => {
  const keyId = mintKeyId(randomBytes);
  const ownerId = mintOwnerId(randomBytes);
  assert.match(keyId, /^key_[0-9A-Za-z]{20}$/);
  assert.match(ownerId, /^own_[0-9A-Za-z]{20}$/);
  const projectId = mintProjectId(randomBytes);
  assert.match(projectId, /^prj_[0-9A-Za-z]{20}$/);
  assert.ok(isKeyId(keyId) && isAccountId(ownerId) && isAccountId(projectId));
  assert.ok(isProjectId(projectId) && !isProjectId(ownerId));
  const others = ["", ownerId, keyId + "0", keyId + "\n", "key_{own_x}*?"];
  for (const text of others) {
    assert.equal(isKeyId(text), false, JSON.stringify(text));
  }
  assert.equal(isAccountId(keyId), false);
});
