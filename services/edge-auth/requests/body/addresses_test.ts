/** Addresses in bodies, and those that no server may fetch. */
import assert from "node:assert/strict";
import { addressType, mustNotPass } from "./addresses.ts";

for (
  const { text, type } of [
    { text: "http://10.0.0.1/a", type: "remote" },
    { text: "HTTPS:10.0.0.1", type: "remote" },
    { text: " \u00a0\n\u0001http://a", type: "remote" },
    { text: "h\tt\r\ntp://a", type: "remote" },
    { text: `h${"\t".repeat(1_000)}ttp://a`, type: "remote" },
    { text: "s3://bucket/a", type: "remote" },
    { text: "file:///etc/passwd", type: "file" },
    { text: "\tFILE:/etc/passwd", type: "file" },
    { text: "data:image/png;base64,AAAA", type: null },
    { text: " data:text/plain,http://a", type: null },
    { text: "//uQxAAAAAA", type: null },
    { text: "iVBORw0KGgo=", type: null },
    { text: "C:\\a.png", type: null },
    { text: "", type: null },
  ] as const
) {
  const shown = JSON.stringify(text.slice(0, 30));
  Deno.test(`addressType() of ${shown} is ${type}`, () => {
    assert.equal(addressType(text), type);
  });
}

Deno.test("mustNotPass() lets a server fetch addresses that are no files", () => {
  const open = { fetches_urls: true };
  const closed = { fetches_urls: false };
  const texts = ["https://a/b", "file:///a", "data:,a"];
  const refused = (model: typeof open) =>
    texts.filter((text) => mustNotPass(text, model));
  assert.deepEqual(refused(open), ["file:///a"]);
  assert.deepEqual(refused(closed), ["https://a/b", "file:///a"]);
});
