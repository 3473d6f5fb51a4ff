import assert from "node:assert/strict";
import {
  type Form,
  hiddenField,
  keyForm,
  ORIGIN,
  startConsole,
} from "../console_fixture.ts";
import { routeCases, routeOwner } from "./routes_fixture.ts";

/** Guarantee: a form has exactly the fields of its page, each once and within its bounds, or nothing happens. */

/** What an attacker would like to set: members of a key's record, of an account, and of every object. */
const EXTRAS = [
  ...["own", "owner", "ownerId", "owner_id", "st", "state", "kid", "id"],
  ...["hash", "hint", "ver", "createdAtMs", "limits", "is_admin", "role"],
  ...["__proto__", "constructor", "prototype", "toString"],
];

Deno.test("API3, ASVS 2.2.1, 2.2.2, 15.3.3 (mass assignment): on every route a field that its page does not have is 400 and changes nothing", async (t) => {
  await using site = await startConsole();
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  for (const [n, { route, requests }] of posts.entries()) {
    const owner = await routeOwner(site, n);
    for (const { path, form } of await requests(site, owner)) {
      const before = await site.stored();
      await t.step(route, async () => {
        for (const extra of EXTRAS) {
          const answer = await owner.client.post(path, {
            ...form,
            [extra]: "x",
          });
          assert.equal(answer.status, 400, extra);
          assert.match(answer.text, /it has an unknown field/, extra);
        }
        for (const name of Object.keys(form ?? {})) {
          if (name === "scopes") continue;
          const twice = { ...form, [name]: ["1", "1"] };
          const answer = await owner.client.post(path, twice);
          assert.equal(answer.status, 400, `${name} twice`);
        }
        assert.deepEqual(await site.stored(), before);
      });
    }
  }
});

Deno.test("ASVS 2.2.1: limits of a key are taken at their bounds and refused beyond", async (t) => {
  await using site = await startConsole();
  const { client, ownerId, keyId } = await routeOwner(site, 1);
  const cases: [field: string, most: string, beyond: string[]][] = [
    ["rpm", "1000000", ["1000001", "1e400", "Infinity", "9007199254740993"]],
    ["tpm", "1000000000000", ["1000000000001", "-1", "1.5", "0x10"]],
    ["tpd", "1000000000000", ["1000000000001", "NaN", "1e3", "٣"]],
    ["concurrency", "1000000", ["1000001", "-0", "+1", "1;2"]],
  ];
  const edit = async (form: Form) => {
    const version = String((await site.deps.keys.get(ownerId, keyId))?.version);
    const path = `/keys/${keyId}/edit`;
    return await client.post(path, keyForm("A key", { ...form, version }));
  };
  for (const [field, most, beyond] of cases) {
    await t.step(field, async () => {
      for (const value of beyond) {
        const before = await site.stored();
        const answer = await edit({ [field]: value });
        assert.equal(answer.status, 400, value);
        assert.match(answer.text, new RegExp(`${field}-error`), value);
        const nonce = hiddenField(
          (await client.get("/keys/new")).text,
          "nonce",
        );
        const form = keyForm("A key", { nonce, [field]: value });
        assert.equal((await client.post("/keys", form)).status, 400, value);
        assert.deepEqual(await site.stored(), before);
      }
      for (const value of ["", "0", "1", most]) {
        assert.equal((await edit({ [field]: value })).status, 303, value);
      }
      const key = await site.deps.keys.get(ownerId, keyId);
      assert.ok(Object.values(key?.limits ?? {}).includes(Number(most)));
    });
  }
});

Deno.test("ASVS 1.5.3: a form that is too large or not UTF-8 is refused on every route", async (t) => {
  await using site = await startConsole();
  const owner = await routeOwner(site, 1);
  const posts = routeCases(site).filter(({ isPost }) => isPost);
  const bytes = (...values: number[]) =>
    Uint8Array.from([0x61, 0x3d, ...values]);
  for (const { route, requests } of posts) {
    await t.step(route, async () => {
      const [request] = await requests(site, owner);
      const statusOf = async (body: BodyInit) =>
        (await owner.client.send(request?.path ?? "", {
          method: "POST",
          headers: {
            origin: ORIGIN,
            "content-type": "application/x-www-form-urlencoded",
          },
          body,
        })).status;
      assert.equal(await statusOf(`a=${"a".repeat(32 * 1024 - 1)}`), 413);
      assert.notEqual(await statusOf(`a=${"a".repeat(32 * 1024 - 2)}`), 413);
      assert.equal(await statusOf("a".repeat(1024 * 1024)), 413, "1 MiB");
      assert.equal(await statusOf(bytes(0xff)), 400, "no UTF-8");
      assert.equal(await statusOf(bytes(0xc0, 0xaf)), 400, "overlong");
      assert.equal(await statusOf(bytes(0xed, 0xa0, 0x80)), 400, "surrogate");
      assert.equal(await statusOf(bytes(0xe4, 0xbd)), 400, "cut");
    });
  }
});
