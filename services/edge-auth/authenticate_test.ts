import assert from "node:assert/strict";
import { hashKeyValue, mintKey } from "@gateway/shared/keys/key";
import { randomBytes } from "@gateway/shared/ids";
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

Deno.test("authenticate() asks for nothing but the hash of a well-formed key", async () => {
  const asked: string[] = [];
  const find = (hash: string) => {
    asked.push(hash);
    return Promise.resolve(PRINCIPAL);
  };
  assert.equal(await authenticate(`Bearer ${KEY}`, find), PRINCIPAL);
  await assert.rejects(authenticate("Bearer sk-wrong", find), {
    code: "unauthorized",
  });
  assert.deepEqual(asked, [hashKeyValue(KEY)]);
});

Deno.test("authenticate() answers an unknown key as a malformed one", async () => {
  const find = () => Promise.resolve(null);
  const bodies: string[] = [];
  for (const header of [`Bearer ${KEY}`, "Bearer sk-wrong", null]) {
    await authenticate(header, find).catch((error) =>
      bodies.push(JSON.stringify(error.toBody()))
    );
  }
  assert.equal(bodies.length, 3);
  assert.equal(new Set(bodies).size, 1);
});
