import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import { AUTH_FAILURE_LIMITS, createFailureLimiter } from "./auth_failures.ts";
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
  const memory = new Map<string, typeof PRINCIPAL | null>();
  return {
    asked,
    memory,
    failures: createFailureLimiter(AUTH_FAILURE_LIMITS, () => 0),
    asking: new Map(),
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

Deno.test("authenticate() stops an address after 20 unknown keys, but not the keys it knows", async () => {
  const parts = setup([hashKeyValue(KEY), hashKeyValue(OTHER_KEY)]);
  parts.memory.set(hashKeyValue(KEY), PRINCIPAL);
  const unknown = () => `Bearer ${mintKey(randomBytes)}`;
  for (let count = 0; count < 20; count += 1) {
    const header = unknown();
    const error = await failure(() => authenticate(header, ADDRESS, parts));
    assert.equal(error.status, 401, `unknown key ${count + 1}`);
  }
  for (const header of [unknown(), `Bearer ${OTHER_KEY}`]) {
    const error = await failure(() => authenticate(header, ADDRESS, parts));
    assert.equal(error.status, 429);
    assert.equal(error.retryAfterMs, AUTH_FAILURE_LIMITS.windowMs);
  }
  assert.equal(await authenticate(`Bearer ${KEY}`, ADDRESS, parts), PRINCIPAL);
  const other = () => "192.0.2.2";
  assert.equal(
    await authenticate(`Bearer ${OTHER_KEY}`, other, parts),
    PRINCIPAL,
  );
  for (const header of [null, "Bearer sk-wrong"]) {
    const error = await failure(() => authenticate(header, ADDRESS, parts));
    assert.equal(error.status, 401, "guesses nothing");
  }
});

Deno.test("authenticate() looks up no more keys of an address at a time than may be unknown", async () => {
  const parts = setup();
  const wrong = () =>
    failure(() =>
      authenticate(`Bearer ${mintKey(randomBytes)}`, ADDRESS, parts)
    );
  const errors = await Promise.all(Array.from({ length: 1_000 }, wrong));
  const statuses = errors.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [...Array(20).fill(401), ...Array(980).fill(429)]);
  assert.equal(parts.asked.length, 20);
  assert.equal(parts.asking.size, 0);
});

Deno.test("authenticate() lets any number of good keys of an address in, twenty at a time", async () => {
  const keys = Array.from({ length: 500 }, () => mintKey(randomBytes));
  const parts = setup(keys.map(hashKeyValue));
  const found = await Promise.all(
    keys.map((key) => authenticate(`Bearer ${key}`, ADDRESS, parts)),
  );
  assert.deepEqual(found, Array(500).fill(PRINCIPAL));
  assert.equal(parts.asked.length, 500);
});

Deno.test("authenticate() tells all of an address at once that nobody can be asked", async () => {
  const parts = setup();
  let asked = 0;
  const lookup = {
    ...parts.lookup,
    find: () => {
      asked += 1;
      return Promise.reject(new ApiError("service_unavailable", "away"));
    },
  };
  const errors = await Promise.all(
    Array.from(
      { length: 100 },
      () =>
        failure(() =>
          authenticate(`Bearer ${mintKey(randomBytes)}`, ADDRESS, {
            ...parts,
            lookup,
          })
        ),
    ),
  );
  assert.deepEqual(errors.map(({ status }) => status), Array(100).fill(503));
  assert.equal(asked, 20, "those who waited did not ask again");
  assert.equal(parts.asking.size, 0);
});

Deno.test("authenticate() does not count what names no key, or could not be checked", async () => {
  const parts = setup();
  const away = new ApiError("service_unavailable", "away");
  const lookup = { ...parts.lookup, find: () => Promise.reject(away) };
  for (let count = 0; count < 50; count += 1) {
    await failure(() => authenticate(null, ADDRESS, parts));
    await failure(() => authenticate("Bearer sk-wrong", ADDRESS, parts));
    const error = await failure(() =>
      authenticate(`Bearer ${KEY}`, ADDRESS, { ...parts, lookup })
    );
    assert.equal(error, away);
  }
  assert.equal(parts.failures.waitMs(ADDRESS()), 0);
});
