// Promise: no member is lost because of its name, and none changes a prototype.
import assert from "node:assert/strict";
import { z } from "zod";
import { keepProtoMembers } from "./proto_members.ts";

const inner = z.looseObject({ a: z.number() });
const schema = z.looseObject({ list: z.array(inner), one: inner });
const TEXT = '{"__proto__":{"polluted":1},"list":[{"a":1,"__proto__":2}],' +
  '"one":{"a":3,"__proto__":{"polluted":4},"rest":{"__proto__":5}}}';

Deno.test("keepProtoMembers() gives copies the members that the original has", () => {
  const original: unknown = JSON.parse(TEXT);
  const parsed = schema.parse(original);
  assert.notEqual(JSON.stringify(parsed).match(/__proto__/g)?.length, 4);
  keepProtoMembers(original, parsed);
  assert.equal(JSON.stringify(parsed).match(/__proto__/g)?.length, 4);
  assert.deepEqual(JSON.parse(JSON.stringify(parsed)), original);
});

Deno.test("ASVS 15.3.6: keepProtoMembers() changes no prototype", () => {
  const original: unknown = JSON.parse(TEXT);
  const parsed = schema.parse(original);
  keepProtoMembers(original, parsed);
  for (const each of [parsed, parsed.one, parsed.list[0], {}]) {
    assert.equal(Object.getPrototypeOf(each), Object.prototype);
    assert.equal(Reflect.get(Object(each), "polluted"), undefined);
  }
});
