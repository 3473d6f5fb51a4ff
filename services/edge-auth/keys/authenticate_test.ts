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

Deno.test("authenticate() looks up only well-formed keys, and treats unknown and malformed ones alike", async () => {
  const unknown = mintKey(randomBytes);
  const asked: string[] = [];
  const lookup = {
    find(hash: string, address: () => string) {
      asked.push(`${hash} from ${address()}`);
      return Promise.resolve(hash === hashKeyValue(KEY) ? PRINCIPAL : null);
    },
  };
  const found = await authenticate(`Bearer ${KEY}`, ADDRESS, lookup);
  assert.equal(found, PRINCIPAL);
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
