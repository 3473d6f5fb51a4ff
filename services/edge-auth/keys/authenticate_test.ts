import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/process/ids";
import { ApiError } from "@gateway/shared/openai/error";
import { authenticate, bearerCredential } from "./authenticate.ts";

const KEY = mintKey(randomBytes);
const PRINCIPAL = { keyId: "key_a", ownerId: "own_a" };
const ADDRESS = () => "192.0.2.1";

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

Deno.test("authenticate() looks up only the hash of a well-formed key that is not remembered, and treats unknown and malformed keys alike", async () => {
  const [unknown, known] = [mintKey(randomBytes), mintKey(randomBytes)];
  const memory = new Map([[hashKeyValue(known), PRINCIPAL]]);
  const asked: string[] = [];
  const lookup = {
    remembered: (hash: string) => memory.get(hash),
    find(hash: string, address: string) {
      asked.push(`${hash} from ${address}`);
      return Promise.resolve(hash === hashKeyValue(KEY) ? PRINCIPAL : null);
    },
  };
  for (const value of [KEY, known]) {
    const found = await authenticate(`Bearer ${value}`, ADDRESS, lookup);
    assert.equal(found, PRINCIPAL);
  }
  const bodies = new Set<string>();
  for (const header of [`Bearer ${unknown}`, "Bearer sk-wrong", null]) {
    await assert.rejects(authenticate(header, ADDRESS, lookup), (error) => {
      assert.ok(error instanceof ApiError);
      bodies.add(JSON.stringify(error.toBody()));
      return error.status === 401;
    });
  }
  assert.equal(bodies.size, 1);
  assert.deepEqual(
    asked,
    [KEY, unknown].map((value) => `${hashKeyValue(value)} from ${ADDRESS()}`),
  );
});
