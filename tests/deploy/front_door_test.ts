// Promise: the proxy of deploy/proxy serves TLS only, does not redirect from HTTP to
// HTTPS, and exposes nothing internal.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";

const FILE = fileURLToPath(
  new URL("../../deploy/proxy/Caddyfile", import.meta.url),
);

/** The blocks of the file by their headings, which are addresses for sites. */
async function readBlocks(): Promise<Map<string, string>> {
  const text = (await Deno.readTextFile(FILE)).replace(/^\s*#.*$/gm, "");
  const blocks = new Map<string, string>();
  for (
    const [, head, body] of text.matchAll(/^(\S.*?)? ?\{\n([\s\S]*?)^\}/gm)
  ) {
    blocks.set(head ?? "", body ?? "");
  }
  return blocks;
}

Deno.test("ASVS 12.1.1, 12.2.1: every public site is served over TLS 1.2 or later", async () => {
  const blocks = await readBlocks();
  const sites = [...blocks].filter(([head]) => !/^$|^\(/.test(head));
  const outside = sites.filter(([, body]) => !body.includes("bind 127.0.0.1"));
  assert.deepEqual(
    outside.map(([head]) => head),
    ["{$API_HOST:localhost}", "{$CONSOLE_HOST:console.localhost}"],
  );
  for (const [head, body] of outside) {
    assert.ok(!head.includes("http://"), head);
    assert.match(body, /^\s*import door$/m, head);
  }
  const door = blocks.get("(door)") ?? "";
  assert.match(door, /^\s*tls \{\$TLS:internal\}$/m);
  assert.match(door, /Strict-Transport-Security "max-age=31536000/);
  // The proxy's defaults are 1.2 and 1.3; the file must not change them.
  assert.ok(
    !/tls1\.[01]|insecure|protocols tls/.test([...blocks.values()].join()),
  );
});

Deno.test("ASVS 4.1.2: plain HTTP is not redirected to HTTPS, and the proxy has no administration port", async () => {
  const options = (await readBlocks()).get("") ?? "";
  assert.match(options, /^\s*auto_https disable_redirects$/m);
  assert.match(options, /^\s*admin off$/m);
});

Deno.test("API4: the proxy closes slow and idle connections", async () => {
  const blocks = await readBlocks();
  const options = blocks.get("") ?? "";
  for (const bound of ["read_header 10s", "read_body 120s", "idle 60s"]) {
    assert.ok(options.includes(bound), bound);
  }
  assert.match(options, /max_header_size 32KB/);
  for (const [head, body] of blocks) {
    if (head.includes("HOST")) assert.match(body, /max_size /, head);
  }
});
