/** How the owner of a key is found, and what is remembered. */
import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { deletedKey, hashKey } from "@gateway/shared/keys/record";
import { randomBytes } from "@gateway/shared/process/ids";
import { silentLog } from "@gateway/shared/process/log";
import { DeletedKeyError, unauthorized } from "../limits/refusal.ts";
import { authenticate, KeyLookup } from "./authenticate.ts";

const KEY = mintKey(randomBytes);
const ADDRESS = () => "192.0.2.1";
const KEY_ID = `key_${"k".repeat(20)}`;
const OWNER_ID = `own_${"o".repeat(20)}`;
const PRINCIPAL = { keyId: KEY_ID, ownerId: OWNER_ID };

/** A look-up in a Redis with these entries for the hash "a". */
function setup(entry: string | null, deleted: string | null = null) {
  const clock = { ms: 0 };
  const commands: (readonly string[])[] = [];
  const keys = new KeyLookup({
    redis: {
      state: "ready",
      command: () => assert.fail("it watches nothing"),
      evalScript(_script, { args = [] }) {
        commands.push(args);
        return Promise.resolve([entry, "the name of the store", deleted]);
      },
    },
    now: () => clock.ms,
    log: silentLog,
    unknownPerSecond: 20,
  });
  return { clock, commands, keys, find: () => keys.find("a", ADDRESS) };
}

Deno.test("find() reads a hash once, however many ask at the same time or later", async () => {
  const { find, keys, commands } = setup(`${KEY_ID}:${OWNER_ID}`);
  for (const reads of [1, 2]) {
    const found = await Promise.all(Array.from({ length: 100 }, find));
    assert.deepEqual(found, Array(100).fill(PRINCIPAL));
    assert.deepEqual(await find(), PRINCIPAL);
    const args = [hashKey("a"), deletedKey("a")];
    assert.deepEqual(commands, Array(reads).fill(args));
    keys.forget(PRINCIPAL);
  }
});

Deno.test("find() remembers unknown hashes for 30 s", async () => {
  const { find, clock, commands } = setup(null);
  for (const [ms, reads] of [[0, 1], [29_999, 1], [30_000, 2]] as const) {
    clock.ms = ms;
    assert.equal(await find(), null);
    assert.equal(commands.length, reads);
  }
});

Deno.test("find() knows for 30 s whose a deleted key was, and answers as for an unknown one", async () => {
  const { find, clock, commands } = setup(null, `${KEY_ID}:${OWNER_ID}`);
  for (const [ms, reads] of [[0, 1], [29_999, 1], [30_000, 2]] as const) {
    clock.ms = ms;
    const error = await find().catch((error: unknown) => error);
    assert.ok(error instanceof DeletedKeyError);
    assert.deepEqual(error.principal, PRINCIPAL);
    assert.deepEqual(error.toBody(), unauthorized().toBody());
    assert.equal(error.status, 401);
    assert.equal(commands.length, reads);
  }
});

Deno.test("find() rejects an entry that is not a pair of ids", async () => {
  for (const entry of ["", "key_a:own_b", `${KEY_ID}:${OWNER_ID}:x`]) {
    await assert.rejects(setup(entry).find(), /Malformed/);
  }
});

Deno.test("authenticate() looks up only well-formed keys", async () => {
  const unknown = mintKey(randomBytes);
  const hashes: string[] = [];
  const find = (hash: string) => {
    hashes.push(hash);
    return Promise.resolve(hash === hashKeyValue(KEY) ? PRINCIPAL : null);
  };
  const found = await authenticate(`Bearer ${KEY}`, find);
  assert.equal(found, PRINCIPAL);
  for (const header of [`Bearer ${unknown}`, "Bearer sk-wrong", ""]) {
    const refused = authenticate(header, find);
    await assert.rejects(refused, { status: 401 });
  }
  assert.deepEqual(hashes, [KEY, unknown].map(hashKeyValue));
});
