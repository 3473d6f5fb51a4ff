import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import { authenticate, bearerCredential } from "./authenticate.ts";

const KEY = mintKey(randomBytes);
const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };

Deno.test("bearerCredential() takes the scheme in any case and any number of blanks", () => {
  for (
    const header of [
      `Bearer ${KEY}`,
      `bearer ${KEY}`,
      `BEARER   ${KEY}`,
      `Bearer ${KEY}  `,
    ]
  ) assert.equal(bearerCredential(header), KEY, header);
});

Deno.test("bearerCredential() refuses everything that is not exactly one of our keys", () => {
  const refused: Record<string, string | null> = {
    "no header": null,
    "empty": "",
    "no scheme": KEY,
    "another scheme": `Basic ${KEY}`,
    "no credential": "Bearer ",
    "a tab": `Bearer\t${KEY}`,
    "two credentials": `Bearer ${KEY}, Bearer ${KEY}`,
    "a list": `Bearer ${KEY} ${KEY}`,
    "another vendor's":
      "Bearer sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJK",
    "one character short": `Bearer ${KEY.slice(0, -1)}`,
    "one character long": `Bearer ${KEY}0`,
    "Latin-1": `Bearer ${KEY.slice(0, -1)}é`,
    "overlong": `Bearer ${"a".repeat(9_000)}`,
  };
  for (const [why, header] of Object.entries(refused)) {
    assert.equal(bearerCredential(header), null, why);
  }
});

const ADDRESS = () => "192.0.2.1";
const OTHER_KEY = mintKey(randomBytes);

function setup(known: readonly string[] = []) {
  const asked: string[] = [];
  const told: string[] = [];
  const memory = new Map<string, typeof PRINCIPAL | null>();
  return {
    asked,
    memory,
    told,
    turns: {
      take() {
        told.push("take");
        return Promise.resolve();
      },
      giveBack: () => void told.push("back"),
    },
    lookup: {
      remembered: (hash: string) => memory.get(hash),
      find: (hash: string) => {
        asked.push(hash);
        return Promise.resolve(known.includes(hash) ? PRINCIPAL : null);
      },
    },
  };
}

/** The error of a call that must fail, thrown at once or later. */
async function failure(call: () => unknown): Promise<ApiError> {
  try {
    await call();
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    return error;
  }
  assert.fail("It was let in");
}

Deno.test("authenticate() asks for nothing but the hash of a well-formed key", async () => {
  const parts = setup([hashKeyValue(KEY)]);
  const { asked } = parts;
  assert.equal(await authenticate(`Bearer ${KEY}`, ADDRESS, parts), PRINCIPAL);
  const error = await failure(() =>
    authenticate("Bearer sk-wrong", ADDRESS, parts)
  );
  assert.equal(error.code, "unauthorized");
  assert.deepEqual(asked, [hashKeyValue(KEY)]);
});

Deno.test("authenticate() answers an unknown key as a malformed one", async () => {
  const parts = setup();
  const bodies = new Set<string>();
  for (const header of [`Bearer ${KEY}`, "Bearer sk-wrong", null]) {
    const error = await failure(() => authenticate(header, ADDRESS, parts));
    bodies.add(JSON.stringify(error.toBody()));
  }
  assert.equal(bodies.size, 1);
});

Deno.test("authenticate() counts a look-up against the address only where the key is unknown", async () => {
  const parts = setup([hashKeyValue(KEY)]);
  await authenticate(`Bearer ${KEY}`, ADDRESS, parts);
  assert.deepEqual(parts.told, ["take", "back"]);
  const unknown = `Bearer ${mintKey(randomBytes)}`;
  const error = await failure(() => authenticate(unknown, ADDRESS, parts));
  assert.equal(error.status, 401);
  assert.deepEqual(parts.told, ["take", "back", "take"]);
  const away = new ApiError("service_unavailable", "away");
  const lookup = { ...parts.lookup, find: () => Promise.reject(away) };
  const unavailable = await failure(() =>
    authenticate(unknown, ADDRESS, { ...parts, lookup })
  );
  assert.equal(unavailable, away);
  assert.deepEqual(parts.told, ["take", "back", "take", "take", "back"]);
});

Deno.test("authenticate() asks for no turn for what it remembers", async () => {
  const parts = setup();
  parts.memory.set(hashKeyValue(KEY), PRINCIPAL);
  parts.memory.set(hashKeyValue(OTHER_KEY), null);
  assert.equal(await authenticate(`Bearer ${KEY}`, ADDRESS, parts), PRINCIPAL);
  const error = await failure(() =>
    authenticate(`Bearer ${OTHER_KEY}`, ADDRESS, parts)
  );
  assert.equal(error.status, 401);
  assert.deepEqual(parts.told, []);
});
